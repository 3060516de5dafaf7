package get

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/kv8s/curl-me-that/fetcher/internal/egress"
)

// Do makes one GET. The error is an *Error. If ctx is done, it is the error of ctx, which is not
// the server's fault.
func (c *Client) Do(ctx context.Context, r Request) (Response, error) {
	start := time.Now()
	defer func() { c.deps.Observe(ctx, phaseTotal, time.Since(start)) }()
	// Without a condition in the request, a 304 is invalid.
	r.ETag, r.LastModified = validETag(r.ETag), validDate(r.LastModified)
	x := &exchange{client: c, request: c.Resolve(r), hop: c.newHop(ctx)}
	timed, cancel := context.WithTimeoutCause(ctx, c.cfg.Timeout, errTimeout(c.cfg.Timeout))
	defer cancel()
	response, err := x.follow(timed)
	switch {
	case err == nil:
		return response, nil
	case ctx.Err() != nil:
		return Response{}, fmt.Errorf("stop GET: %w", context.Cause(ctx))
	case timed.Err() != nil && !x.decided:
		err = errTimeout(c.cfg.Timeout)
	}
	failed := x.failure(err)
	failed.Settings = c.settings(settingsKind(failed), x.request)
	return Response{}, failed
}

// exchange is one GET with all its hops.
type exchange struct {
	client    *Client
	request   Request
	host      string
	redirects int
	// redirected reports whether another origin was reached.
	redirected bool
	// credential reports whether a credential was sent.
	credential bool
	// hop is the current one.
	hop *hop
	rejection
}

// rejection is a response with a bad status.
type rejection struct {
	status     int
	retryAfter time.Duration
	snippet    []byte
	// decided reports that the failure is known, even if the time is up meanwhile.
	decided bool
}

// follow makes the GET and follows its redirects.
func (x *exchange) follow(ctx context.Context) (Response, error) {
	u, err := egress.ParseURL(x.request.URL)
	if err != nil {
		x.host = hostOf(x.request.URL)
		return Response{}, err
	}
	x.host = u.Hostname()
	for {
		response, next, err := x.withCredentials(ctx, u)
		if err != nil || next == nil {
			response.Credential = x.credential
			return response, err
		}
		if !sameOrigin(u, next) {
			x.redirected = true
		}
		u = next
	}
}

// withCredentials makes a hop with its credentials. After a 401 it tries again with newer ones, if any.
func (x *exchange) withCredentials(ctx context.Context, u *url.URL) (_ Response, next *url.URL, _ error) {
	var entry *headerEntry
	if !x.redirected {
		entry = x.request.grants.find(u)
	}
	if entry != nil && x.request.Untrusted {
		return Response{}, nil, errUntrusted
	}
	if err := x.request.policy.CheckURL(u); err != nil {
		return Response{}, nil, err
	}
	secrets, err := x.client.credentials(ctx, entry)
	if err != nil {
		x.decided = true
		return Response{}, nil, err
	}
	x.credential = x.credential || secrets.sends()
	response, next, err := x.withConditions(ctx, u, secrets)
	if x.status == http.StatusUnauthorized {
		if other, found := x.client.replace(ctx, secrets); found {
			x.rejection = rejection{}
			secrets = other
			response, next, err = x.withConditions(ctx, u, secrets)
		}
	}
	if denied := x.status == http.StatusUnauthorized || x.status == http.StatusForbidden; denied && !x.redirected {
		pausing := x.status == http.StatusForbidden && x.retryAfter > 0
		return response, next, secrets.explain(x.errStatus(), !pausing)
	}
	return response, next, err
}

// withConditions makes a hop, and repeats it without conditions if the response is about another body, or if the
// server may reject the conditions. In the second case the URL gets none from then on.
func (x *exchange) withConditions(ctx context.Context, u *url.URL, secrets credentials) (Response, *url.URL, error) {
	conditional := x.conditional(u)
	response, next, err := x.hopTo(ctx, u, secrets)
	switch {
	case !conditional || !x.decided:
		return response, next, err
	case x.status == http.StatusNotModified:
		x.request.Validators = Validators{}
	case rejectsCondition(x.status) && x.retryAfter == 0:
		x.request.Validators = Validators{From: x.request.From}
	default:
		return response, next, err
	}
	x.rejection = rejection{}
	return x.hopTo(ctx, u, secrets)
}

// conditional reports whether a GET of a URL has conditions.
func (x *exchange) conditional(u *url.URL) bool {
	return x.request.Conditional() && x.request.From == urlDigest(u)
}

// hopTo makes one request; next is the target of a redirect.
func (x *exchange) hopTo(ctx context.Context, u *url.URL, secrets credentials) (_ Response, next *url.URL, _ error) {
	x.hop = x.client.newHop(ctx)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	direct := x.client.isDirect(x.request.policy, u.Hostname())
	line := requestURL(u, !direct && u.Scheme == "http")
	request := (&http.Request{Method: http.MethodGet, URL: line, Header: x.headers(u, secrets)}).WithContext(ctx)
	by := &transport{client: x.client, policy: x.request.policy, identity: secrets.identity, hop: x.hop}
	answer, err := by.RoundTrip(request)
	x.report(request, u, answer)
	if err != nil {
		return Response{}, nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	switch {
	case answer.StatusCode == http.StatusOK:
		response, err := x.content(ctx, u, answer)
		return response, nil, err
	case answer.StatusCode == http.StatusNotModified && x.conditional(u) && x.request.confirmed(answer.Header):
		return Response{NotModified: true, Validators: x.request.Validators}, nil, nil
	case isRedirect(answer.StatusCode):
		next, err := x.redirect(u, answer)
		return Response{}, next, err
	}
	x.badStatus(answer, cancel)
	return Response{}, nil, x.errStatus()
}

func (x *exchange) headers(u *url.URL, secrets credentials) http.Header {
	h := http.Header{
		"Accept":          {"*/*"},
		"Accept-Encoding": {"identity"},
		"User-Agent":      {"curl-me-that/" + x.client.cfg.Version + " (+https://github.com/kv8s/curl-me-that)"},
	}
	conditional := x.conditional(u)
	if conditional && x.request.ETag != "" {
		h.Set("If-None-Match", x.request.ETag)
	}
	if conditional && x.request.LastModified != "" {
		h.Set("If-Modified-Since", x.request.LastModified)
	}
	secrets.apply(h)
	return h
}
