package get

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/kv8s/curl-me-that/fetcher/internal/egress"
)

// Do makes one GET. The error is an *Error. If ctx is done, it is the error of ctx, which is not the server's fault.
func (c *Client) Do(ctx context.Context, r Request) (Response, error) {
	start := time.Now()
	defer func() { r.Observer.phase(phaseTotal, time.Since(start)) }()
	// Without a condition in the request, a 304 is invalid.
	r.ETag, r.LastModified = validETag(r.ETag), validDate(r.LastModified)
	x := &exchange{client: c, request: c.Resolve(r)}
	timed, cancel := context.WithTimeoutCause(ctx, c.cfg.Timeout, errTimeout(c.cfg.Timeout))
	defer cancel()
	end := x.follow(timed)
	switch {
	case end.err == nil:
		return end.response, nil
	case ctx.Err() != nil:
		return Response{}, fmt.Errorf("stop GET: %w", context.Cause(ctx))
	case timed.Err() != nil && !end.decided:
		end.err = errTimeout(c.cfg.Timeout)
	}
	failed := x.failure(end)
	failed.Settings = c.settings(settingsKind(failed), x.request)
	return Response{}, failed
}

// exchange is one GET with all its hops. Each hop has an end.
type exchange struct {
	client *Client
	// request loses its Validators in withConditions if a server rejects them.
	request Request
	// host is the host of the requested URL, and redirects counts the redirects that were followed.
	host      string
	redirects int
	// redirected reports whether another origin was reached, from the next hop on.
	redirected bool
	// credential reports whether a credential was sent.
	credential bool
}

// hopEnd is the end of a hop: a response, the next URL of a redirect, or an error, perhaps after a rejection.
type hopEnd struct {
	response Response
	next     *url.URL
	err      error
	rejection
	// hop is nil if no request was made, or if the class of the error does not depend on it.
	hop *hop
}

// isEmpty reports whether the response is a body without a byte.
func (h hopEnd) isEmpty() bool {
	return h.err == nil && h.next == nil && !h.response.NotModified && len(h.response.Body) == 0
}

// rejection is a response that is neither a body nor a redirect that may be followed.
type rejection struct {
	status     int
	retryAfter time.Duration
	snippet    []byte
	// decided reports that the failure is known, even if the time is up meanwhile.
	decided bool
}

// follow makes the GET and follows its redirects.
func (x *exchange) follow(ctx context.Context) hopEnd {
	u, err := egress.ParseURL(x.request.URL)
	if err != nil {
		x.host = hostOf(x.request.URL)
		return hopEnd{err: err}
	}
	x.host = u.Hostname()
	for {
		end := x.withCredentials(ctx, u)
		if end.err != nil || end.next == nil {
			end.response.Credential = x.credential
			return end
		}
		x.redirected = x.redirected || !sameOrigin(u, end.next)
		u = end.next
	}
}

// withCredentials makes a hop with its credentials. After a 401 it tries again with newer ones, if any.
func (x *exchange) withCredentials(ctx context.Context, u *url.URL) hopEnd {
	var entry *headerEntry
	if !x.redirected {
		entry = x.request.grants.find(u)
	}
	if entry != nil && x.request.Untrusted {
		return hopEnd{err: errUntrusted}
	}
	if err := x.request.policy.CheckURL(u); err != nil {
		return hopEnd{err: err}
	}
	secrets, err := x.client.credentials(ctx, u, entry)
	if err != nil {
		return hopEnd{err: err, rejection: rejection{decided: true}}
	}
	x.credential = x.credential || secrets.sends()
	end := x.withConditions(ctx, u, secrets)
	if end.status == http.StatusUnauthorized {
		if other, found := x.client.replace(ctx, secrets); found {
			secrets = other
			end = x.withConditions(ctx, u, secrets)
		}
	}
	if denied := end.status == http.StatusUnauthorized || end.status == http.StatusForbidden; denied && !x.redirected {
		pausing := end.status == http.StatusForbidden && end.retryAfter > 0
		end.err = secrets.explain(end.errStatus(), !pausing)
	}
	return end
}

// withConditions makes a hop, and repeats it without conditions if the response is about another body or is a broken
// 304, or if the server may reject the conditions. In the last case the URL gets none from then on.
func (x *exchange) withConditions(ctx context.Context, u *url.URL, secrets credentials) hopEnd {
	conditional := x.conditional(secrets)
	end := x.hopTo(ctx, u, secrets)
	switch {
	case conditional && end.isEmpty(): // some gateways replace the status 304 by 200
		x.request.Validators = Validators{}
	case !conditional || !end.decided:
		return end
	case end.status == http.StatusNotModified:
		x.request.Validators = Validators{}
	case rejectsCondition(end.status) && end.retryAfter == 0:
		x.request.Validators = Validators{From: x.request.From}
	default:
		return end
	}
	return x.hopTo(ctx, u, secrets)
}

// conditional reports whether a GET with these credentials has conditions.
func (x *exchange) conditional(secrets credentials) bool {
	return x.request.Conditional() && x.request.From == secrets.from
}

// hopTo makes one request.
func (x *exchange) hopTo(ctx context.Context, u *url.URL, secrets credentials) hopEnd {
	h := &hop{observer: x.request.Observer}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	direct := x.client.isDirect(x.request.policy, u.Hostname())
	line := requestURL(u, !direct && u.Scheme == "http")
	request := (&http.Request{Method: http.MethodGet, URL: line, Header: x.headers(secrets)}).WithContext(ctx)
	by := &transport{client: x.client, policy: x.request.policy, identity: secrets.identity, hop: h}
	answer, err := by.RoundTrip(request)
	x.show(request, u, secrets, answer)
	if err != nil {
		return hopEnd{err: err, hop: h}
	}
	defer func() { _ = answer.Body.Close() }()
	switch {
	case answer.StatusCode == http.StatusOK:
		response, err := x.content(secrets.from, answer)
		return hopEnd{response: response, err: err, hop: h}
	case answer.StatusCode == http.StatusNotModified && x.conditional(secrets) && x.request.confirmed(answer.Header):
		return hopEnd{response: Response{NotModified: true, Validators: x.request.Validators}}
	case isRedirect(answer.StatusCode):
		return x.redirect(u, answer)
	}
	end := hopEnd{rejection: x.rejected(answer, cancel), hop: h}
	end.err = end.errStatus()
	return end
}

func (x *exchange) headers(secrets credentials) http.Header {
	h := http.Header{
		"Accept":          {"*/*"},
		"Accept-Encoding": {"identity"},
		"User-Agent":      {"curl-me-that/" + x.client.cfg.Version + " (+https://github.com/kv8s/curl-me-that)"},
	}
	conditional := x.conditional(secrets)
	if conditional && x.request.ETag != "" {
		h.Set("If-None-Match", x.request.ETag)
	}
	if conditional && x.request.LastModified != "" {
		h.Set("If-Modified-Since", x.request.LastModified)
	}
	secrets.apply(h)
	return h
}
