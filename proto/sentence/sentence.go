// Package sentence has the sentences about the state of a key that Events, the status annotation, curlctl and logs
// share.
package sentence

import (
	"cmp"
	"fmt"
	neturl "net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/duration"
	"github.com/kv8s/curl-me-that/proto/failure"
	"github.com/kv8s/curl-me-that/proto/rule"
	"github.com/kv8s/curl-me-that/proto/weburl"
)

// Host returns the host of a URL, even an IP address, for readers of that URL. Metrics and logs use
// weburl.HostOf, which hides addresses.
func Host(url string) string {
	host := weburl.HostOf(url)
	if host == weburl.HiddenHost {
		if u, err := neturl.Parse(url); err == nil {
			host = u.Hostname()
		}
	}
	return cmp.Or(host, "the host in the URL")
}

// Failure says why the fetch for a want failed. It contains no query string, no IP address except
// that in the URL, and nothing of the response except the status.
func Failure(w *v1.Want, f *v1.Failure) string {
	if f.GetClass() != failure.ContentRejected {
		return OfHost(Host(w.GetUrl()), f)
	}
	text := rejected(w, int(f.GetRule()))
	if limit := f.GetLimitBytes(); limit > 0 {
		return text + ": the limit is " + bytes(limit)
	}
	return detailed(text, ": ", f)
}

// OfHost says why a fetch from a host failed.
func OfHost(host string, f *v1.Failure) string {
	if text := specific(host, f); text != "" {
		return text
	}
	switch f.GetClass() {
	case failure.BadStatus:
		return detailed(host+" responded with "+status(int(f.GetStatusCode()))+credential(f), "; ", f) + blocked(f)
	case failure.CredentialsFailed:
		return detailed(cmp.Or(source(f), "the token URL")+" gave no token for "+host, ": ", f)
	default:
		return detailed(fmt.Sprintf(cmp.Or(classes[f.GetClass()].sentence, "the request to %s failed"), host), ": ", f)
	}
}

// detailed appends the details of a failure to a sentence, if there are any.
func detailed(text, separator string, f *v1.Failure) string {
	if words := Detail(f); words != "" {
		text += separator + words
	}
	return text
}

// specific returns the sentence about a failure whose detail or numbers say more than its class;
// empty if there is none.
func specific(host string, f *v1.Failure) string {
	limit := f.GetTimeLimit().AsDuration()
	n := int64(f.GetRedirects())
	if f.GetClass() == failure.CredentialsFailed { // the details are about another host
		return ""
	}
	if format := details[f.GetDetail()].sentence; format != "" {
		return fmt.Sprintf(format, host)
	}
	switch f.GetDetail() { //nolint:exhaustive // others add nothing to the sentence of their class
	case failure.RetryAfter:
		text := " asks for a pause: it responded with "
		switch f.GetStatusCode() {
		case 202:
			text = " does not have the body ready yet: it responded with "
		case 403:
			text = " limits the rate of requests: it responded with "
		}
		return host + text + strconv.Itoa(int(f.GetStatusCode())) + " and Retry-After"
	case failure.RedirectLimit:
		if n > 0 {
			return host + " redirected more than " + counted(n, "time")
		}
		return host + " redirected too often"
	case failure.ConnectTimeout:
		if limit > 0 {
			return "could not connect to " + host + " within " + duration.Format(limit)
		}
		return "could not connect to " + host + " in time"
	case failure.CertificateAuthority, failure.CertificateHost,
		failure.CertificateTime, failure.CertificateInvalid,
		failure.CertificateNameless, failure.CertificateChain:
		return "the TLS certificate of " + host + " cannot be trusted: " + Detail(f)
	}
	switch {
	case f.GetClass() == failure.AddressDenied && n > 0:
		text := detailed(fmt.Sprintf("redirect %d of %s leads to a URL that is not allowed", n, host), ": ", f) +
			"; use a URL without that redirect"
		if d := f.GetDetail(); d != failure.DeniedURL &&
			d != failure.DeniedScheme { // no policy allows these
			text += ", or ask the operator"
		}
		return text
	case f.GetClass() == failure.Timeout && limit > 0:
		return host + " did not respond within " + duration.Format(limit) + ", a limit of the operator; " +
			"use a faster URL, or ask the operator to raise it"
	case f.GetClass() == failure.BodyTooLarge && f.GetLimitBytes() > 0:
		return "the body from " + host + " is larger than the limit of " + bytes(f.GetLimitBytes()) +
			"; use a smaller file, or ask the operator to raise it"
	case len(f.GetSha256()) >= shownDigits:
		return "the body from " + host + " has SHA-256 " + f.GetSha256()[:shownDigits] +
			"…, which is not the one in curl-sha256"
	}
	return ""
}

// shownDigits is the number of digits of a digest in a sentence.
const shownDigits = 12

// classes are the sentences about classes, with the host in place of %s (empty: package sentence has others), and the
// section of the page "Why is my key empty?" that explains the class (0: none). The numbers do not change.
var classes = map[v1.FailureClass]struct {
	sentence string
	section  int
}{
	failure.InvalidAnnotation: {"", 2},
	failure.KeyExists:         {"", 3},
	failure.AddressDenied:     {"fetching from %s is not allowed", 4},
	failure.DNSFailed:         {"%s was not found in DNS", 5},
	failure.ConnectFailed:     {"could not connect to %s", 6},
	failure.Timeout:           {"%s did not respond in time", 6},
	failure.TLSFailed:         {"TLS handshake with %s failed", 7},
	failure.BadStatus:         {"", 8},
	failure.CredentialsFailed: {"", 8},
	failure.TooManyRedirects:  {"a redirect from %s was not followed", 8},
	failure.BadResponse:       {"%s sent an unusable response", 8},
	failure.BodyTooLarge:      {"the body from %s is too large", 9},
	failure.DigestMismatch:    {"the body from %s does not match curl-sha256", 9},
	failure.ContentRejected:   {"", 9},
	failure.WriteFailed:       {"", 10},
	failure.Immutable:         {"", 10},
	failure.Poison:            {"the request to %s could not be completed", 0},
}

// status returns a status code in words, with what to do about a success other than 200.
func status(code int) string {
	text := strconv.Itoa(code)
	switch {
	case code == 204, code == 205:
		return text + " (no content), but only 200 is accepted; use a URL that returns a body"
	case code == 206:
		return text + " (partial content) although no part was requested; use a URL that responds with 200"
	case code/100 == 2:
		return text + ", but only 200 is accepted; use a URL that responds with 200"
	case code == 304:
		return text + " (not modified) although the request had no condition; use a URL that responds with 200"
	case code/100 == 3:
		return text + ", which is not followed; use the URL that it leads to"
	}
	return text
}

// credential says which credential a server rejected.
func credential(f *v1.Failure) string {
	if source(f) == "" {
		return ""
	}
	return "; the credential of " + source(f) + " was sent"
}

// blocked names the other usual cause of a 403 without a credential.
func blocked(f *v1.Failure) string {
	if f.GetStatusCode() != 403 || f.GetDetail() != failure.NoCredential {
		return ""
	}
	return ", or the server rejects the User-Agent, which a header entry can change"
}

// sources matches the valid sources of a credential, because a fetcher may be compromised.
var sources = regexp.MustCompile(`^((entry [0-9]{1,5} of the header file)|(Secret )?[a-z0-9.-]{1,253})$`)

func source(f *v1.Failure) string { return sources.FindString(f.GetCredential()) }

// rejected says which expression of a want the response does not pass. The fetcher reports only its
// number.
func rejected(w *v1.Want, number int) string {
	text := Host(w.GetUrl()) + ": the response for " + w.GetKey()
	switch expect := w.GetExpect(); {
	case number == 0 && w.GetSelect() != "":
		return text + " has nothing for curl-select, " + rule.Shortened(w.GetSelect())
	case number > 0 && number <= len(expect):
		return text + " does not meet rule " + strconv.Itoa(number) + " of curl-expect, " + rule.Shortened(expect[number-1])
	}
	return text + " does not meet curl-expect"
}

// UpdateAvailable says that a pinned key waits for the approval of other content.
func UpdateAvailable(url, digest string) string {
	return Host(url) + " has other content (sha256 " + digest + ")"
}

// KeyExists is the sentence about a key that somebody else wrote.
func KeyExists(key string) string {
	return "key " + key + " already exists and is not managed by curl-me-that; " +
		"remove it from the ConfigMap, or choose another key"
}

// ChangedBy says that another field manager (empty: unknown) has changed a key.
func ChangedBy(key, manager string) string {
	if manager == "" {
		return "key " + key + " was changed by somebody else"
	}
	return "key " + key + " was changed by field manager " + manager
}

// Contested says the same, and what to do.
func Contested(key, manager string) string {
	return ChangedBy(key, manager) + "; remove the key from its manifest"
}

// KeyOfOther is the sentence about a key that another installation keeps in sync.
func KeyOfOther(key, annotation string) string {
	return "key " + key + " is kept in sync for annotation " + annotation + "; remove one of the two pairs, or, if no " +
		"installation reads that annotation, run `curlctl hand-over`"
}

// BecomesHTML says why an HTML page is not written to a key.
func BecomesHTML(url, key string) string {
	return Host(url) + " responded with an HTML page, perhaps a login or an error page, and key " + key +
		" holds something else, which it keeps; set curl-allow-html to true if the page is meant"
}

// NoRoom says why the status of a ConfigMap is not written.
const NoRoom = "the annotations of the ConfigMap leave no room for curl-status (limit 256 KiB)"

// Failed says why a ConfigMap is not written although the API server is ready.
const Failed = "" +
	"the API server could not write the ConfigMap, perhaps because an admission webhook is slow or broken; " +
	"ask the operator, the log of the writer has the error"

// Stripped says why the state of a ConfigMap is unknown.
const Stripped = "" +
	"an admission policy removes curl-status, so changes are found late and removed pairs keep their values; " +
	"exempt x-kv8s.io/curl-status from it"

// Altered says why a key has another value than the body.
func Altered(key string) string {
	return "an admission policy or webhook changes the value of key " + key + " in each write; " +
		"exempt the ConfigMap from it"
}

// ObjectTooLarge says why a body of that size is not written to a key of a ConfigMap with much metadata.
func ObjectTooLarge(key string, size int) string {
	return "the ConfigMap with its metadata and the body for key " + key + " (" + bytes(int64(size)) +
		") is too large for etcd (limit 1.5 MiB) or for a request (3 MiB); " +
		"remove metadata, or move the key to another ConfigMap"
}

// Unwritten says why the body from url, of that size if it is known, is not written to a key, for a
// class that the writer reports.
func Unwritten(class v1.FailureClass, url, key string, size int) string {
	switch class {
	case failure.KeyExists:
		return KeyExists(key)
	case failure.Immutable:
		return "the ConfigMap is immutable, so key " + key +
			" cannot be written; delete it and create it again without immutable: true"
	case failure.BodyTooLarge:
		shown := ""
		if size > 0 {
			shown = " (" + bytes(int64(size)) + ")"
		}
		return "the ConfigMap would exceed 1 MiB with the body for key " + key + shown + "; move the key to another ConfigMap"
	case failure.WriteFailed:
		return "the API server refused to write the body from " + Host(url) +
			", perhaps by an admission policy or webhook; ask the operator, the log of the writer says which"
	default:
		return Failure(&v1.Want{Url: url}, &v1.Failure{Class: class})
	}
}

// Value says what a key holds while it fails.
func Value(key string, written bool) string {
	if written {
		return "key " + key + " keeps its last good value"
	}
	return "key " + key + " has no value yet"
}

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

// Permanent ends the sentence about a Terminal failure.
const Permanent = "tried again when the URL or the fetch policy changes"

// Next says when the next attempt is, for a failure observed at that time; empty if unknown. Times are
// UTC, to the minute. The sentence about a fetch that gave up stays true if the failure is observed
// again.
func Next(f *v1.Failure, observed time.Time) string {
	if f.GetNextAt() == nil {
		return ""
	}
	at := f.GetNextAt().AsTime()
	asked := ""
	if f.GetWaitsFor() == v1.WaitsFor_WAITS_FOR_PAUSE {
		asked = ", as the host requested"
	}
	if !f.GetGaveUp() {
		return "next attempt in " + rounded(at.Sub(observed)) + asked
	}
	text := "next try at " + at.UTC().Format("15:04") + " UTC" + asked
	// Other rejected content is not tried again soon.
	if f.GetClass() != failure.ContentRejected || f.GetDetail() == failure.Costly {
		text = "giving up after " + Attempts(int64(f.GetAttempts())) + "; " + text
	}
	if every := f.GetInterval().AsDuration(); every > 0 {
		text += ", then " + frequency(every)
	}
	return text
}

// page is the address of the page "Why is my key empty?", and the start of its anchors.
const page = "https://github.com/kv8s/curl-me-that/blob/main/deploy/docs/why-empty.md#"

// WhyEmpty returns the address of the section of that page that explains a failure (empty if there is none).
func WhyEmpty(c v1.FailureClass) string {
	if n := classes[c].section; n > 0 {
		return page + strconv.Itoa(n)
	}
	return ""
}

func frequency(every time.Duration) string {
	if every == time.Hour {
		return "hourly"
	}
	return "every " + duration.Format(every)
}

// Attempts counts attempts in words.
func Attempts(n int64) string { return counted(n, "attempt") }

func counted(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.FormatInt(n, 10) + " " + what + "s"
}

// bytes formats a size with separators, such as 1,000,000 bytes.
func bytes(n int64) string {
	if n == 1 {
		return "1 byte"
	}
	text := strconv.FormatInt(n, 10)
	for at := len(text) - 3; at > 0; at -= 3 {
		text = text[:at] + "," + text[at:]
	}
	return text + " bytes"
}

// rounded formats a wait in whole seconds, from 2 min on in whole minutes.
func rounded(d time.Duration) string {
	unit := time.Second
	if d >= 2*time.Minute {
		unit = time.Minute
	}
	return duration.Format(max(d.Round(unit), time.Second))
}

// WaitsFor returns the obstacle to an attempt for url in words (empty if there is none).
func WaitsFor(w v1.WaitsFor, url string) string {
	switch w {
	case v1.WaitsFor_WAITS_FOR_PAUSE:
		return "pause of " + Host(url)
	case v1.WaitsFor_WAITS_FOR_HOST:
		return "slot of " + Host(url)
	case v1.WaitsFor_WAITS_FOR_NAMESPACE_SHARE:
		return "slot share of the namespace"
	case v1.WaitsFor_WAITS_FOR_NAMESPACE_BYTES:
		return "byte budget of the namespace"
	case v1.WaitsFor_WAITS_FOR_NAMESPACE_TIME:
		return "time budget of the namespace"
	case v1.WaitsFor_WAITS_FOR_SHARED_GET:
		return "GET of the same URL"
	case v1.WaitsFor_WAITS_FOR_SLOTS:
		return "slot of the fetcher"
	case v1.WaitsFor_WAITS_FOR_UNSPECIFIED:
	}
	return ""
}
