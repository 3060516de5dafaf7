package demo

import (
	"context"
	"fmt"
	"net"
	"net/http"

	"golang.org/x/sync/errgroup"

	"github.com/kv8s/curl-me-that/deploy/local/demo/joke"
	"github.com/kv8s/curl-me-that/proto/process"
)

const (
	// jokePort is the port in the sample ConfigMap.
	jokePort = "8642"
	// downPort is the port of a server that is down at first.
	downPort = "8643"
	jokePath = joke.Path
)

// hosts are the web servers of the demo.
type hosts struct {
	host    string
	serving *errgroup.Group
}

func (h *hosts) url(port, path string) string {
	return "http://" + net.JoinHostPort(h.host, port) + path
}

// serve starts a server, which runs until ctx is done.
func (h *hosts) serve(ctx context.Context, port string) error {
	address := net.JoinHostPort(h.host, port)
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("start the web server of the demo on %s: %w", address, err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET "+joke.Path, joke.Handler())
	h.serving.Go(func() error { return process.Serve(ctx, listener, mux) })
	return nil
}
