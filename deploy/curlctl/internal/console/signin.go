package console

import (
	"net/http"
	"net/netip"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/console/access"
)

// signInRoutes adds sign-in and sign-out.
func (s *Server) signInRoutes(mux *http.ServeMux) {
	mux.HandleFunc("GET /signin", func(w http.ResponseWriter, r *http.Request) { s.signInForm(w, r, "") })
	mux.HandleFunc("POST /signin", s.signIn)
	mux.HandleFunc("POST /signout", func(w http.ResponseWriter, r *http.Request) {
		http.SetCookie(w, s.tokens.SignOut(r))
		http.Redirect(w, r, "/signin", http.StatusSeeOther)
	})
}

func (s *Server) signInForm(w http.ResponseWriter, r *http.Request, problem string) {
	v := &visit{Request: r, server: s, w: w, person: &access.Person{}, client: s.deps.Conn.Client.Counting()}
	status := http.StatusOK
	if problem != "" {
		status = http.StatusUnauthorized
	}
	v.write(&page{template: "signin.html", title: "Sign in", status: status, data: map[string]any{
		"Problem": problem, "Audience": access.Audience,
	}})
}

func (s *Server) signIn(w http.ResponseWriter, r *http.Request) {
	// The person is not known yet, so the limit is per address.
	from, _ := netip.ParseAddrPort(r.RemoteAddr)
	if !s.addresses.allow(from.Addr().String()) {
		http.Error(w, "Too many requests. Wait a second.", http.StatusTooManyRequests)
		return
	}
	cookie, wrong := s.tokens.SignIn(r)
	if wrong != "" {
		s.signInForm(w, r, wrong)
		return
	}
	http.SetCookie(w, cookie)
	http.Redirect(w, r, "/", http.StatusSeeOther)
}
