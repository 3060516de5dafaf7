package console

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"sync"

	"github.com/kv8s/curl-me-that/deploy/curlctl/broker"
)

// access gives the first browser that opens URL the rights of the NATS user: it replaces a token, which is valid
// once, with the cookie of a session.
type access struct {
	// name of the NATS user.
	name                  string
	mayReplay             bool
	base, cookie, session string

	mu    sync.Mutex
	token string
}

// newAccess returns the access to a console at a loopback address, such as http://127.0.0.1:8090.
func newAccess(ctx context.Context, d Deps, base *url.URL) *access {
	a := &access{
		mayReplay: true, base: base.String(), cookie: "curlctl-console-" + base.Port(),
		token: rand.Text(), session: rand.Text(),
	}
	user, err := d.Conn.User(ctx)
	a.name = user.Name
	for _, identity := range broker.Identities() {
		if identity.Name == broker.Replayer && err == nil { // else the server denies what is not allowed
			a.mayReplay = len(identity.Missing(user, d.Conn.Client.APIPrefix())) == 0
		}
	}
	return a
}

// URL returns the address that signs in once.
func (s *Server) URL() string { return s.access.base + "/?token=" + s.access.token }

// IsLoopback reports whether a host is localhost or a loopback address.
func IsLoopback(host string) bool {
	address, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && address.IsLoopback()
}

// onLoopback rejects requests for any other host name, which protects against DNS rebinding.
func onLoopback(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		if !IsLoopback(host) {
			http.Error(w, "Use localhost or a loopback address to open this console.", http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// allows reports whether a request may see a page. If not, it writes the response.
func (a *access) allows(w http.ResponseWriter, r *http.Request) bool {
	if token := r.URL.Query().Get("token"); token != "" && r.Method == http.MethodGet {
		a.enter(w, r, token)
		return false
	}
	cookie, err := r.Cookie(a.cookie)
	if err != nil || !equalSecrets(cookie.Value, a.session) {
		http.Error(w, "Open the address that `curlctl console` printed. It signs in once.", http.StatusUnauthorized)
		return false
	}
	return true
}

// enter exchanges the token for a cookie.
func (a *access) enter(w http.ResponseWriter, r *http.Request, token string) {
	a.mu.Lock()
	valid := a.token != "" && equalSecrets(token, a.token)
	if valid {
		a.token = ""
	}
	a.mu.Unlock()
	if !valid {
		http.Error(w, "This address was used already. Restart `curlctl console` for another one.", http.StatusUnauthorized)
		return
	}
	//nolint:gosec // G124: plain HTTP does not leave this machine
	http.SetCookie(w, &http.Cookie{
		Name: a.cookie, Value: a.session, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode,
	})
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

func equalSecrets(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }
