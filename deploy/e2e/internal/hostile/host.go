package hostile

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/origin"
)

const (
	// slow is the latency of a slow page.
	slow = 3 * time.Second
	// large is the size of a large body. One fits into a ConfigMap, two do not.
	large = 900_000
	// letters is the size of a body for rules, just below their limit.
	letters = 250_000
)

// startHost starts a web server. The first segment of the path selects its behavior.
func startHost() *origin.Server {
	var requests atomic.Int64
	return origin.Start(func(site http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			n := requests.Add(1)
			kind, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
			switch kind {
			case "instant":
				fmt.Fprint(w, "body of ", r.URL.Path) //nolint:gosec // a hostile server
			case "changing":
				fmt.Fprint(w, "body ", n)
			case "slow":
				wait(r, slow)
				fmt.Fprint(w, "body of ", r.URL.Path) //nolint:gosec // a hostile server
			case "hanging":
				wait(r, time.Minute)
			case "flapping":
				if n%2 == 0 {
					w.WriteHeader(http.StatusServiceUnavailable)
				}
				fmt.Fprint(w, "body of ", r.URL.Path) //nolint:gosec // a hostile server
			case "missing":
				w.WriteHeader(http.StatusNotFound)
			case "busy":
				w.Header().Set("Retry-After", "3600")
				w.WriteHeader(http.StatusTooManyRequests)
			case "large":
				_, _ = w.Write(append(bytes.Repeat([]byte("x"), large), fmt.Sprint(n)...))
			case "letters":
				_, _ = w.Write(bytes.Repeat([]byte("x"), letters))
			case "pattern":
				fmt.Fprint(w, "(", strings.Repeat("a?", 490), "){1000}")
			case "loop":
				http.Redirect(w, r, r.URL.Path, http.StatusFound) //nolint:gosec // a hostile server
			case "endless":
				for r.Context().Err() == nil {
					if _, err := w.Write(make([]byte, 64<<10)); err != nil {
						return
					}
				}
			default:
				site.ServeHTTP(w, r)
			}
		})
	})
}

// wait returns after d, or when the client disconnects.
func wait(r *http.Request, d time.Duration) {
	select {
	case <-r.Context().Done():
	case <-time.After(d):
	}
}
