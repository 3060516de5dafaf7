package get

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/kv8s/curl-me-that/fetcher/internal/egress"
	"github.com/kv8s/curl-me-that/proto/weburl"
)

// maxRedirects is the maximum number of redirects to follow.
const maxRedirects = 5

// isRedirect reports whether a status redirects a GET (RFC 9110 section 15.4).
func isRedirect(status int) bool {
	switch status {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther,
		http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return true
	}
	return false
}

// redirect returns the target of a redirect, if it may be followed. The next hop checks whether the
// target may be reached.
func (x *exchange) redirect(from *url.URL, answer *http.Response) hopEnd {
	wrong := func(err error) hopEnd { return hopEnd{err: err, rejection: rejection{status: answer.StatusCode}} }
	location := only(answer.Header, "Location") // clients differ in which of two they follow
	switch {
	case location == "":
		return wrong(errLocation)
	case x.redirects == maxRedirects:
		return wrong(errRedirects)
	}
	target, problem := weburl.Resolve(textOf(from), location)
	next, err := egress.ParseURL(target)
	switch {
	case problem == weburl.BadScheme:
		err = &egress.DeniedError{Rule: egress.RuleScheme}
	case problem == weburl.HasUser:
		err = &egress.DeniedError{Rule: egress.RuleUserinfo}
	case problem != "":
		return wrong(errLocation)
	case err == nil && from.Scheme == "https" && next.Scheme == "http":
		return wrong(errDowngrade)
	}
	x.redirects++
	return hopEnd{next: next, err: err}
}

// textOf returns the text of a URL as it was written, with a question mark in any case.
func textOf(u *url.URL) string { return u.Scheme + "://" + u.Host + u.RawPath + "?" + u.RawQuery }

// requestURL returns the URL that a request sends: u with its path as written, which package url would
// escape again. A proxy gets the absolute form (RFC 9112 section 3.2.2), and so does a server that would
// read the path as an authority. Its host is the Host of the request, without a default port, as clients agree:
// the signature of a presigned URL may cover it, and a server may not know another one.
func requestURL(u *url.URL, toProxy bool) *url.URL {
	line := *u
	line.Host = strings.TrimSuffix(u.Host, ":"+egress.Port(&url.URL{Scheme: u.Scheme}))
	switch {
	case u.EscapedPath() == u.RawPath:
	case toProxy || strings.HasPrefix(u.RawPath, "//"):
		line.Opaque = "//" + line.Host + u.RawPath
	default:
		line.Opaque = u.RawPath
	}
	return &line
}

// sameOrigin reports whether credentials for one URL may be sent to another: the same host, scheme
// and port, or the same host with an upgrade from http to https at the default ports.
func sameOrigin(from, to *url.URL) bool {
	if from.Hostname() != to.Hostname() {
		return false
	}
	if from.Scheme == to.Scheme {
		return egress.Port(from) == egress.Port(to)
	}
	return egress.Port(from) == "80" && egress.Port(to) == "443"
}

// hostOf returns the host of a URL whose text is denied, if it can be shown. weburl.HostOf is not suitable, because the
// result becomes part of an Error's text, and that function accepts anything as a host.
func hostOf(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return ""
	}
	host := strings.ToLower(u.Hostname())
	if len(host) > weburl.MaxHostBytes || strings.Trim(host, "abcdefghijklmnopqrstuvwxyz0123456789.:_-") != "" {
		return ""
	}
	return host
}
