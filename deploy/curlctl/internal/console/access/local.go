package access

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/doctor"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/natsconn"
)

// Local accepts a token once, on this machine. The NATS user decides the permissions.
type Local struct {
	OnLoopback

	// base is the address of the console, and cookie the name of the cookie.
	base, cookie string
	user         Person
	rights       map[Right]bool

	mu      sync.Mutex
	token   string
	session string
}

// NewLocal returns access to a console at a loopback address, such as http://127.0.0.1:8090.
func NewLocal(ctx context.Context, conn *natsconn.Connection, base *url.URL) *Local {
	l := &Local{
		base: base.String(), cookie: "curlctl-console-" + base.Port(), token: rand.Text(), session: rand.Text(),
	}
	l.user.Name, l.rights = natsRights(ctx, conn)
	return l
}

// natsRights returns the name and the rights of the NATS user. If the server does not report them, natsRights
// assumes all, since the server denies operations that are not allowed.
func natsRights(ctx context.Context, conn *natsconn.Connection) (name string, rights map[Right]bool) {
	user, err := conn.User(ctx)
	rights = map[Right]bool{See: true, Audits: true}
	has := map[string]bool{}
	for _, identity := range doctor.Identities() {
		has[identity.Name] = err != nil || len(identity.Missing(user, conn.Client.APIPrefix())) == 0
	}
	rights[Replay] = has[doctor.Replayer]
	rights[Purge], rights[Pause] = has[doctor.Admin], has[doctor.Admin]
	return user.Name, rights
}

// IsLoopback reports whether a host is localhost or a loopback address.
func IsLoopback(host string) bool {
	address, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && address.IsLoopback()
}

// URL returns the address that signs in once.
func (l *Local) URL() string { return l.base + "/?token=" + l.token }

// OnLoopback refuses requests for any other host name, which protects against DNS rebinding.
type OnLoopback struct{}

// Guard implements console.Access.
func (OnLoopback) Guard(next http.Handler) http.Handler {
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

// Person implements console.Access.
func (l *Local) Person(w http.ResponseWriter, r *http.Request) *Person {
	if token := r.URL.Query().Get("token"); token != "" && r.Method == http.MethodGet {
		l.enter(w, r, token)
		return nil
	}
	cookie, err := r.Cookie(l.cookie)
	if err != nil || !same(cookie.Value, l.session) {
		http.Error(w, "Open the address that `curlctl console` printed. It signs in once.", http.StatusUnauthorized)
		return nil
	}
	return &l.user
}

// enter exchanges the token for a cookie.
func (l *Local) enter(w http.ResponseWriter, r *http.Request, token string) {
	l.mu.Lock()
	valid := l.token != "" && same(token, l.token)
	if valid {
		l.token = ""
	}
	l.mu.Unlock()
	if !valid {
		http.Error(w, "This address was used already. Restart `curlctl console` for another one.", http.StatusUnauthorized)
		return
	}
	//nolint:gosec // G124: plain HTTP does not leave this machine
	http.SetCookie(w, &http.Cookie{
		Name: l.cookie, Value: l.session, Path: "/", HttpOnly: true, Secure: strings.HasPrefix(l.base, "https:"),
		SameSite: http.SameSiteStrictMode,
	})
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// May implements console.Access.
func (l *Local) May(_ context.Context, _ *Person, right Right, _ string) (bool, error) {
	return l.rights[right], nil
}

// Anonymous allows reading without sign-in at a loopback address.
type Anonymous struct{ OnLoopback }

// Person implements console.Access.
func (Anonymous) Person(http.ResponseWriter, *http.Request) *Person {
	return &Person{Name: "not signed in"}
}

// May implements console.Access.
func (Anonymous) May(_ context.Context, _ *Person, right Right, _ string) (bool, error) {
	return right == See || right == Audits, nil
}
