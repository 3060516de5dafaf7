// Package joke serves the jokes of the demo.
package joke

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"time"
)

// Path is the path of the page with a joke.
const Path = "/joke"

func jokes() []string {
	return []string{
		"A ConfigMap walks into a bar. \"The usual?\" asks the bartender. \"Eventually\", says the ConfigMap.",
		"There are two hard things in distributed systems: 2. exactly-once delivery, 1. order of messages, 2. exactly-once " +
			"delivery.",
		"I would tell you a joke about UDP, but you might not get it. This one came over TCP.",
		"Why did the pod cross the road? It was evicted.",
	}
}

// Handler responds to each request with the next joke, as text.
func Handler() http.Handler {
	count := new(atomic.Int64)
	count.Store(time.Now().Unix())
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		list := jokes()
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		fmt.Fprintln(w, list[int(count.Add(1))%len(list)])
	})
}
