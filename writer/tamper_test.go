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

// dropping fails every request for a resource.
func (c *calls) dropping(resource string) {
	c.with(func(r *http.Request, next send) (*http.Response, error) {
		if strings.Contains(r.URL.Path, "/"+resource) {
			return nil, errCut
		}
		return next(r)
	})
}

// away fails every request.
func (c *calls) away() {
	c.with(func(*http.Request, send) (*http.Response, error) { return nil, errCut })
}

// losing forwards the first requests of a method but loses the responses.
func (c *calls) losing(method string, n int) {
	c.with(func(r *http.Request, next send) (*http.Response, error) {
		response, err := next(r)
		if r.Method != method || err != nil || n == 0 {
			return response, err
		}
		n--
		_ = response.Body.Close()
		return nil, errCut
	})
}

// answering responds to every request of a method like an API server in trouble.
func (c *calls) answering(method string, code int, header http.Header, body string) {
	c.with(func(r *http.Request, next send) (*http.Response, error) {
		if r.Method != method {
			return next(r)
		}
		return reply(r, code, header, body), nil
	})
}

// reply returns a fabricated response.
func reply(r *http.Request, code int, header http.Header, body string) *http.Response {
	header = header.Clone()
	if header == nil {
		header = http.Header{}
	}
	header.Set("Content-Type", "text/plain")
	if strings.HasPrefix(body, "{") {
		header.Set("Content-Type", "application/json")
	}
	return &http.Response{
		StatusCode: code, Status: http.StatusText(code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: header, Body: io.NopCloser(strings.NewReader(body)), Request: r,
	}
}
