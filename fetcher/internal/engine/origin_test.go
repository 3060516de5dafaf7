package engine_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
)

// origin is a web server that counts requests.
type origin struct {
	*httptest.Server
	gets atomic.Int32
}

func serve(handler http.HandlerFunc) *origin {
	o := new(origin)
	o.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		o.gets.Add(1)
		handler(w, r)
	}))
	DeferCleanup(o.Close)
	return o
}

// hangs returns a server that does not respond before the spec ends.
func (w *world) hangs() *origin {
	o := serve(func(http.ResponseWriter, *http.Request) { <-w.ending })
	DeferCleanup(w.end)
	return o
}

// says responds with a body.
func says(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) }
}

// fails responds with a status.
func fails(status int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "secret of the server", status) }
}
