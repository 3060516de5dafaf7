package demo

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"syscall"

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

// url returns the URL of a page of a web server of the demo.
func (d *demo) url(port, path string) string {
	return "http://" + net.JoinHostPort(d.Host, port) + path
}

// serve starts a web server, which runs until ctx is done.
func (d *demo) serve(ctx context.Context, port string) error {
	listener, err := d.listen(ctx, port)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("GET "+joke.Path, joke.Handler())
	d.serving.Go(func() error { return process.Serve(ctx, listener, mux) })
	return nil
}

// tryPort returns why serve would fail.
func (d *demo) tryPort(ctx context.Context, port string) error {
	listener, err := d.listen(ctx, port)
	if err != nil {
		return err
	}
	return listener.Close()
}

func (d *demo) listen(ctx context.Context, port string) (net.Listener, error) {
	address := net.JoinHostPort(d.Host, port)
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		advice := "choose another name with --host"
		if errors.Is(err, syscall.EADDRINUSE) {
			advice = "end the other demo or program that uses it"
		}
		return nil, fmt.Errorf("start the web server of the demo on %s: %w (%s)", address, err, advice)
	}
	return listener, nil
}
