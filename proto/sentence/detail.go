package sentence

import (
	"strings"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/failure"
	"github.com/kv8s/curl-me-that/proto/weburl"
)

// Detail returns the details of a failure in words; empty if there are none.
func Detail(f *v1.Failure) string {
	all := []string{details[f.GetDetail()].words}
	for _, further := range f.GetFurther()[:min(len(f.GetFurther()), 2)] { // a fetcher may be compromised
		if words := details[further].words; words != "" {
			all = append(all, words)
		}
	}
	return strings.Join(all, ", and ")
}

// Terminal reports whether only an edit of the URL or of the operator's policy can help, because
// neither DNS nor a server affects the failure.
func Terminal(url string, f *v1.Failure) bool {
	if f.GetRedirects() > 0 {
		return false
	}
	switch f.GetDetail() {
	case failure.DeniedScheme, failure.DeniedHost,
		failure.HostNotAllowed, failure.DeniedName,
		failure.DeniedPort, failure.DeniedURL:
		return true
	case failure.DeniedAddress, failure.DeniedRange:
		return weburl.HostOf(url) == weburl.HiddenHost
	default:
		return false
	}
}

// detail has the words that follow the sentence of a class, and the sentence that replaces both, with the host in place
// of %s (empty: none).
type detail struct{ words, sentence string }

var details = map[v1.FailureDetail]detail{
	failure.CertificateAuthority: {"it is signed by an unknown authority", ""},
	failure.CertificateHost:      {"it was issued for another host name", ""},
	failure.CertificateTime:      {"it has expired or is not yet valid", ""},
	failure.CertificateInvalid:   {"it is not valid", ""},
	failure.Handshake:            {"the server rejected it or does not speak TLS", ""},
	failure.RedirectLimit:        {"too many redirects", ""},
	failure.RedirectDowngrade: {
		"a redirect from https to http",
		"%s redirected from https to http, which is not followed; use a URL that stays with https",
	},
	failure.RedirectLocation: {
		"a redirect whose Location is missing, has no valid host or is longer than 8,192 characters; " +
			"use a URL without that redirect", "",
	},
	failure.ContentEncoding: {
		"a Content-Encoding that was not requested",
		"%s compressed the body (Content-Encoding), although that was not requested, by something other than gzip; " +
			"have it served uncompressed, or use another URL",
	},
	failure.Proxy:             {"the egress proxy refused the connection", ""},
	failure.DeniedScheme:      {weburl.BadScheme, ""},
	failure.DeniedHost:        {"the operator denies the host", ""},
	failure.HostNotAllowed:    {"the operator does not allow the host", ""},
	failure.DeniedName:        {"the host name has a single label or a reserved suffix", ""},
	failure.DeniedPort:        {"the port is not allowed", ""},
	failure.DeniedAddress:     {"its address is not public", ""},
	failure.DeniedRange:       {"the operator denies its address", ""},
	failure.DeniedURL:         {"the URL or its host name is not valid", ""},
	failure.DeniedCredentials: {"credentials are sent only for wants that the watcher signed", ""},
	failure.NoCredential:      {"no credential is configured for this URL and namespace", ""},
	failure.RetryAfter:        {"the server asks for a pause (Retry-After)", ""},
	failure.NotJSON:           {"the body is not JSON", ""},
	failure.Inapplicable:      {"it cannot be evaluated on this body", ""},
	failure.Costly:            {"its evaluation takes too much time or memory", ""},
	failure.NotCertificates:   {"it has something other than certificates in PEM and blanks", ""},
	failure.BadCertificate:    {"a certificate in it is incomplete or invalid", ""},
	failure.MessageLimit: {
		"it does not fit into a NATS message (max_payload)",
		"the body from %s does not fit into a NATS message (max_payload)",
	},
	failure.ConnectionRefused: {"connection refused", ""},
	failure.NoRoute:           {"no route to the host", ""},
	failure.Closed:            {"no response", "%s closed the connection without a response"},
	failure.CutOff: {
		"incomplete response", "%s sent only part of the response, or closed the connection before its end",
	},
	failure.PlainHTTP: {
		"plain HTTP", "%s responded by plain HTTP to an https:// URL; " +
			"write http:// if that is meant (https:// is assumed where no scheme is written)",
	},
	failure.NotHTTP:        {"not valid HTTP (which curl may accept), or more than 64 KiB of headers", ""},
	failure.ConnectTimeout: {"no connection in time", ""},
	failure.DNSUnavailable: {"no DNS server answered", "the DNS lookup of %s failed: no DNS server answered"},
	failure.BadGzip: {
		"invalid gzip",
		"%s announced gzip (Content-Encoding), but the body is not valid gzip; have it fixed, or use another URL",
	},
	failure.TransferEncoding: {
		"an invalid Transfer-Encoding",
		"%s sent a Transfer-Encoding other than a single chunked, so the end of the body is uncertain; " +
			"have it fixed, or use another URL, even if curl accepts it",
	},
	failure.HTTP2Only: {
		"no HTTP/1.1", "%s does not speak HTTP/1.1, perhaps only HTTP/2; use the URL of a server that does",
	},
	failure.CertificateNameless: {
		"it has only a common name; have one issued with the host as a subject alternative name", "",
	},
	failure.CertificateChain: {
		"it is signed by an unknown authority, or the server does not send its intermediate certificate", "",
	},
	failure.ClientCertificate: {
		"the server asked for a client certificate, and none is configured for this URL and namespace", "",
	},
	failure.ClientCertificateRefused: {
		"the server does not accept the client certificate for this URL and namespace", "",
	},
}
