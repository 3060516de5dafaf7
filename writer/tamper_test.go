package writer_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
)

// send forwards a request to the real API server.
type send = func(*http.Request) (*http.Response, error)

var errCut = errors.New("the connection was cut")

// failing fails every request for a resource.
func (c *calls) failing(resource string) {
	c.with(func(r *http.Request, next send) (*http.Response, error) {
		if strings.Contains(r.URL.Path, "/"+resource) {
			return nil, errCut
		}
		return next(r)
	})
}

// unreachable fails every request.
func (c *calls) unreachable() {
	c.with(func(*http.Request, send) (*http.Response, error) { return nil, errCut })
}

// responding answers every request of a method with a fabricated status.
func (c *calls) responding(method string, code int, body string) {
	c.with(func(r *http.Request, next send) (*http.Response, error) {
		if r.Method != method {
			return next(r)
		}
		return reply(r, code, body), nil
	})
}

// reply returns a fabricated response.
func reply(r *http.Request, code int, body string) *http.Response {
	return &http.Response{
		StatusCode: code, Status: http.StatusText(code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body)), Request: r,
	}
}
