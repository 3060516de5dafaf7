package demo

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/kv8s/curl-me-that/proto/service"
)

// jokeAddress is the one that the sample ConfigMap names.
const jokeAddress = "localhost:8642"

func jokes() []string {
	return []string{
		"A ConfigMap walks into a bar. \"The usual?\" asks the bartender. \"Eventually\", says the ConfigMap.",
		"There are two hard things in distributed systems: 2. exactly-once delivery, 1. order of messages, 2. exactly-once delivery.",
		"I would tell you a joke about UDP, but you might not get it. This one came over TCP.",
		"Why did the pod cross the road? It was evicted.",
	}
}

// serveJokes answers /joke on the loopback interface until ctx is done.
func serveJokes(ctx context.Context) (<-chan error, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", jokeAddress)
	if err != nil {
		return nil, fmt.Errorf("start the server of the demo on %s: %w", jokeAddress, err)
	}
	var told atomic.Int64
	told.Store(time.Now().Unix())
	mux := http.NewServeMux()
	mux.HandleFunc("GET /joke", func(w http.ResponseWriter, _ *http.Request) {
		list := jokes()
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		fmt.Fprintln(w, list[int(told.Add(1))%len(list)])
	})
	ended := make(chan error, 1)
	go func() { ended <- service.Serve(ctx, listener, mux) }()
	return ended, nil
}
