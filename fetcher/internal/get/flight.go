package get

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"time"

	"github.com/kv8s/curl-me-that/fetcher/internal/egress"
)

// Do makes one GET. The error is an *Error, or that of ctx if ctx is done,
// which says nothing about the server.
func (c *Client) Do(ctx context.Context, r Request) (Response, error) {
	start := time.Now()
	defer func() { c.deps.Observer.ObservePhase(Total, time.Since(start)) }()
	// A condition that is not sent must not make a 304 welcome.
	r.ETag, r.LastModified = validETag(r.ETag), validDate(r.LastModified)
	f := &flight{client: c, request: r, policy: c.gate.For(r.Namespace), limit: c.cfg.MaxBody}
	if r.MaxBody > 0 {
		f.limit = min(f.limit, r.MaxBody)
	}
	timed, cancel := context.WithTimeoutCause(ctx, c.cfg.Timeout, errDeadline)
	defer cancel()
	response, err := f.run(timed)
	switch {
	case err == nil:
		return response, nil
	case ctx.Err() != nil:
		return Response{}, fmt.Errorf("stop GET: %w", context.Cause(ctx))
	case timed.Err() != nil && !f.decided:
		err = errDeadline
	}
	return Response{}, f.failure(err)
}

// flight is one GET under way, over all its hops.
type flight struct {
	client  *Client
	request Request
	policy  *egress.Policy
	limit   int64
	host    string
	hops    int
	watch   *stopwatch

	// Of an answer with a bad status.
	status     int
	retryAfter time.Duration
	snippet    []byte
	decided    bool
}

func (f *flight) answered() bool { return f.watch != nil && f.watch.hasAnswer() }

func (f *flight) ended() bool { return f.watch != nil && f.watch.hasEnd() }

func (f *flight) run(ctx context.Context) (Response, error) {
	u, err := egress.ParseURL(f.request.URL)
	if err != nil {
		f.host = hostOf(f.request.URL)
		return Response{}, err
	}
	f.host = u.Hostname()
	secrets := f.client.credentials(f.request.Namespace, u.Hostname())
	for {
		response, next, err := f.hop(ctx, u, secrets)
		if err != nil || next == nil {
			return response, err
		}
		if !sameOrigin(u, next) {
			secrets = credentials{}
		}
		u = next
	}
}

// hop makes one request; next is where a redirect points.
func (f *flight) hop(ctx context.Context, u *url.URL, secrets credentials) (_ Response, next *url.URL, _ error) {
	if err := f.policy.CheckURL(u); err != nil {
		return Response{}, nil, err
	}
	f.watch = &stopwatch{observer: f.client.deps.Observer}
	ctx, cancel := context.WithCancel(httptrace.WithClientTrace(ctx, f.watch.trace()))
	defer cancel()
	request := (&http.Request{Method: http.MethodGet, URL: u, Header: f.headers(secrets)}).WithContext(ctx)
	answer, err := f.client.transport(f.policy).RoundTrip(request)
	if err != nil {
		return Response{}, nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	switch {
	case answer.StatusCode == http.StatusOK:
		response, err := f.content(answer)
		return response, nil, err
	case answer.StatusCode == http.StatusNotModified && f.request.conditional():
		return f.notModified(answer), nil, nil
	case isRedirect(answer.StatusCode):
		next, err := f.redirect(u, answer)
		return Response{}, next, err
	}
	f.refused(answer, cancel)
	return Response{}, nil, errStatus
}

func (f *flight) headers(secrets credentials) http.Header {
	h := http.Header{
		"Accept":          {"*/*"},
		"Accept-Encoding": {"identity"},
		"User-Agent":      {"curl-me-that/" + f.client.cfg.Version + " (+https://github.com/kv8s/curl-me-that)"},
	}
	if f.request.ETag != "" {
		h.Set("If-None-Match", f.request.ETag)
	}
	if f.request.LastModified != "" {
		h.Set("If-Modified-Since", f.request.LastModified)
	}
	secrets.apply(h)
	return h
}
