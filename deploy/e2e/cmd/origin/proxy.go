package main

import (
	"io"
	"net"
	"net/http"
)

// proxied makes next an egress proxy too, which resolves every name to itself. A request for any host gets a
// page of next, and CONNECT leads to the address secure.
func proxied(secure string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect {
			next.ServeHTTP(w, r)
			return
		}
		to, err := (&net.Dialer{}).DialContext(r.Context(), "tcp", secure)
		if err != nil {
			http.Error(w, "no tunnel", http.StatusBadGateway)
			return
		}
		defer to.Close()
		from, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer from.Close()
		_, _ = io.WriteString(from, "HTTP/1.1 200 OK\r\n\r\n") // the client is gone if it fails
		go func() {
			defer to.Close()
			_, _ = io.Copy(to, from)
		}()
		_, _ = io.Copy(from, to)
	})
}
