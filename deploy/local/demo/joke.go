package demo

import (
	"context"
	"fmt"
	"net"
	"net/http"

	"github.com/kv8s/curl-me-that/deploy/local/demo/joke"
	"github.com/kv8s/curl-me-that/proto/service"
)

// jokeAddress is the one that the sample ConfigMap names.
const jokeAddress = "localhost:8642"

// serveJokes answers /joke on the loopback interface until ctx is done.
func serveJokes(ctx context.Context) (<-chan error, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", jokeAddress)
	if err != nil {
		return nil, fmt.Errorf("start the server of the demo on %s: %w", jokeAddress, err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET "+joke.Path, joke.Handler())
	ended := make(chan error, 1)
	go func() { ended <- service.Serve(ctx, listener, mux) }()
	return ended, nil
}
