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

	"github.com/kv8s/curl-me-that/proto/annotation/duration"
	"github.com/kv8s/curl-me-that/proto/annotation/weburl"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/rule"
)

// Host returns the host of a URL, even an IP address, for readers of that URL. Metrics and logs use
// pipeline.HostOf, which hides addresses.
func Host(url string) string {
	host := pipeline.HostOf(url)
	if host == pipeline.HiddenHost {
		if u, err := neturl.Parse(url); err == nil {
			host = u.Hostname()
		}
	}
	return cmp.Or(host, "the host in the URL")
}

// Of says why the fetch for a want failed. It contains no query string, no IP address except
// that in the URL, and nothing of the response except the status.
func Of(w *v1.Want, f *v1.Failure) string {
	if f.GetClass() != v1.FailureClass_FAILURE_CLASS_CONTENT_REJECTED {
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
	case v1.FailureClass_FAILURE_CLASS_BAD_STATUS:
		return detailed(host+" responded with "+status(int(f.GetStatusCode()))+credential(f), "; ", f) + blocked(f)
	case v1.FailureClass_FAILURE_CLASS_CREDENTIALS_FAILED:
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
	if f.GetClass() == v1.FailureClass_FAILURE_CLASS_CREDENTIALS_FAILED { // the details are about another host
		return ""
	}
	if format := details[f.GetDetail()].sentence; format != "" {
		return fmt.Sprintf(format, host)
	}
	switch f.GetDetail() { //nolint:exhaustive // others add nothing to the sentence of their class
	case v1.FailureDetail_FAILURE_DETAIL_RETRY_AFTER:
		text := " asks for a pause: it responded with "
		switch f.GetStatusCode() {
		case 202:
			text = " does not have the body ready yet: it responded with "
		case 403:
			text = " limits the rate of requests: it responded with "
		}
		return host + text + strconv.Itoa(int(f.GetStatusCode())) + " and Retry-After"
	case v1.FailureDetail_FAILURE_DETAIL_REDIRECT_LIMIT:
		if n > 0 {
			return host + " redirected more than " + counted(n, "time")
		}
		return host + " redirected too often"
	case v1.FailureDetail_FAILURE_DETAIL_CONNECT_TIMEOUT:
		if limit > 0 {
			return "could not connect to " + host + " within " + duration.Format(limit)
		}
		return "could not connect to " + host + " in time"
	case v1.FailureDetail_FAILURE_DETAIL_CERTIFICATE_AUTHORITY, v1.FailureDetail_FAILURE_DETAIL_CERTIFICATE_HOST,
		v1.FailureDetail_FAILURE_DETAIL_CERTIFICATE_TIME, v1.FailureDetail_FAILURE_DETAIL_CERTIFICATE_INVALID,
		v1.FailureDetail_FAILURE_DETAIL_CERTIFICATE_NAMELESS, v1.FailureDetail_FAILURE_DETAIL_CERTIFICATE_CHAIN:
		return "the TLS certificate of " + host + " cannot be trusted: " + Detail(f)
	}
	switch {
	case f.GetClass() == v1.FailureClass_FAILURE_CLASS_ADDRESS_DENIED && n > 0:
		text := detailed(fmt.Sprintf("redirect %d of %s leads to a URL that is not allowed", n, host), ": ", f) +
			"; use a URL without that redirect"
		if d := f.GetDetail(); d != v1.FailureDetail_FAILURE_DETAIL_DENIED_URL &&
			d != v1.FailureDetail_FAILURE_DETAIL_DENIED_SCHEME { // no policy allows these
			text += ", or ask the operator"
		}
		return text
	case f.GetClass() == v1.FailureClass_FAILURE_CLASS_TIMEOUT && limit > 0:
		return host + " did not respond within " + duration.Format(limit) + ", a limit of the operator; " +
			"use a faster URL, or ask the operator to raise it"
	case f.GetClass() == v1.FailureClass_FAILURE_CLASS_BODY_TOO_LARGE && f.GetLimitBytes() > 0:
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
	v1.FailureClass_FAILURE_CLASS_INVALID_ANNOTATION: {"", 2},
	v1.FailureClass_FAILURE_CLASS_KEY_EXISTS:         {"", 3},
	v1.FailureClass_FAILURE_CLASS_ADDRESS_DENIED:     {"fetching from %s is not allowed", 4},
	v1.FailureClass_FAILURE_CLASS_DNS_FAILED:         {"%s was not found in DNS", 5},
	v1.FailureClass_FAILURE_CLASS_CONNECT_FAILED:     {"could not connect to %s", 6},
	v1.FailureClass_FAILURE_CLASS_TIMEOUT:            {"%s did not respond in time", 6},
	v1.FailureClass_FAILURE_CLASS_TLS_FAILED:         {"TLS handshake with %s failed", 7},
	v1.FailureClass_FAILURE_CLASS_BAD_STATUS:         {"", 8},
	v1.FailureClass_FAILURE_CLASS_CREDENTIALS_FAILED: {"", 8},
	v1.FailureClass_FAILURE_CLASS_TOO_MANY_REDIRECTS: {"a redirect from %s was not followed", 8},
	v1.FailureClass_FAILURE_CLASS_BAD_RESPONSE:       {"%s sent an unusable response", 8},
	v1.FailureClass_FAILURE_CLASS_BODY_TOO_LARGE:     {"the body from %s is too large", 9},
	v1.FailureClass_FAILURE_CLASS_DIGEST_MISMATCH:    {"the body from %s does not match curl-sha256", 9},
	v1.FailureClass_FAILURE_CLASS_CONTENT_REJECTED:   {"", 9},
	v1.FailureClass_FAILURE_CLASS_WRITE_FAILED:       {"", 10},
	v1.FailureClass_FAILURE_CLASS_IMMUTABLE:          {"", 10},
	v1.FailureClass_FAILURE_CLASS_POISON:             {"the request to %s could not be completed", 0},
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
	if f.GetStatusCode() != 403 || f.GetDetail() != v1.FailureDetail_FAILURE_DETAIL_NO_CREDENTIAL {
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
	case v1.FailureClass_FAILURE_CLASS_KEY_EXISTS:
		return KeyExists(key)
	case v1.FailureClass_FAILURE_CLASS_IMMUTABLE:
		return "the ConfigMap is immutable, so key " + key +
			" cannot be written; delete it and create it again without immutable: true"
	case v1.FailureClass_FAILURE_CLASS_BODY_TOO_LARGE:
		shown := ""
		if size > 0 {
			shown = " (" + bytes(int64(size)) + ")"
		}
		return "the ConfigMap would exceed 1 MiB with the body for key " + key + shown + "; move the key to another ConfigMap"
	case v1.FailureClass_FAILURE_CLASS_WRITE_FAILED:
		return "the API server refused to write the body from " + Host(url) +
			", perhaps by an admission policy or webhook; ask the operator, the log of the writer says which"
	default:
		return Of(&v1.Want{Url: url}, &v1.Failure{Class: class})
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
	case v1.FailureDetail_FAILURE_DETAIL_DENIED_SCHEME, v1.FailureDetail_FAILURE_DETAIL_DENIED_HOST,
		v1.FailureDetail_FAILURE_DETAIL_HOST_NOT_ALLOWED, v1.FailureDetail_FAILURE_DETAIL_DENIED_NAME,
		v1.FailureDetail_FAILURE_DETAIL_DENIED_PORT, v1.FailureDetail_FAILURE_DETAIL_DENIED_URL:
		return true
	case v1.FailureDetail_FAILURE_DETAIL_DENIED_ADDRESS, v1.FailureDetail_FAILURE_DETAIL_DENIED_RANGE:
		return pipeline.HostOf(url) == pipeline.HiddenHost
	default:
		return false
	}
}

// detail has the words that follow the sentence of a class, and the sentence that replaces both, with the host in place
// of %s (empty: none).
type detail struct{ words, sentence string }

var details = map[v1.FailureDetail]detail{
	v1.FailureDetail_FAILURE_DETAIL_CERTIFICATE_AUTHORITY: {"it is signed by an unknown authority", ""},
	v1.FailureDetail_FAILURE_DETAIL_CERTIFICATE_HOST:      {"it was issued for another host name", ""},
	v1.FailureDetail_FAILURE_DETAIL_CERTIFICATE_TIME:      {"it has expired or is not yet valid", ""},
	v1.FailureDetail_FAILURE_DETAIL_CERTIFICATE_INVALID:   {"it is not valid", ""},
	v1.FailureDetail_FAILURE_DETAIL_HANDSHAKE:             {"the server rejected it or does not speak TLS", ""},
	v1.FailureDetail_FAILURE_DETAIL_REDIRECT_LIMIT:        {"too many redirects", ""},
	v1.FailureDetail_FAILURE_DETAIL_REDIRECT_DOWNGRADE: {
		"a redirect from https to http",
		"%s redirected from https to http, which is not followed; use a URL that stays with https",
	},
	v1.FailureDetail_FAILURE_DETAIL_REDIRECT_LOCATION: {
		"a redirect whose Location is missing, has no valid host or is longer than 8,192 characters; " +
			"use a URL without that redirect", "",
	},
	v1.FailureDetail_FAILURE_DETAIL_CONTENT_ENCODING: {
		"a Content-Encoding that was not requested",
		"%s compressed the body (Content-Encoding), although that was not requested, by something other than gzip; " +
			"have it served uncompressed, or use another URL",
	},
	v1.FailureDetail_FAILURE_DETAIL_PROXY:            {"the egress proxy refused the connection", ""},
	v1.FailureDetail_FAILURE_DETAIL_DENIED_SCHEME:    {weburl.BadScheme, ""},
	v1.FailureDetail_FAILURE_DETAIL_DENIED_HOST:      {"the operator denies the host", ""},
	v1.FailureDetail_FAILURE_DETAIL_HOST_NOT_ALLOWED: {"the operator does not allow the host", ""},
	v1.FailureDetail_FAILURE_DETAIL_DENIED_NAME:      {"the host name has a single label or a reserved suffix", ""},
	v1.FailureDetail_FAILURE_DETAIL_DENIED_PORT:      {"the port is not allowed", ""},
	v1.FailureDetail_FAILURE_DETAIL_DENIED_ADDRESS:   {"its address is not public", ""},
	v1.FailureDetail_FAILURE_DETAIL_DENIED_RANGE:     {"the operator denies its address", ""},
	v1.FailureDetail_FAILURE_DETAIL_DENIED_URL:       {"the URL or its host name is not valid", ""},
	v1.FailureDetail_FAILURE_DETAIL_DENIED_CREDENTIALS: {
		"credentials are sent only for wants that the watcher signed", "",
	},
	v1.FailureDetail_FAILURE_DETAIL_NO_CREDENTIAL: {"no credential is configured for this URL and namespace", ""},
	v1.FailureDetail_FAILURE_DETAIL_RETRY_AFTER:   {"the server asks for a pause (Retry-After)", ""},
	v1.FailureDetail_FAILURE_DETAIL_NOT_JSON:      {"the body is not JSON", ""},
	v1.FailureDetail_FAILURE_DETAIL_INAPPLICABLE:  {"it cannot be evaluated on this body", ""},
	v1.FailureDetail_FAILURE_DETAIL_COSTLY:        {"its evaluation takes too much time or memory", ""},
	v1.FailureDetail_FAILURE_DETAIL_NOT_CERTIFICATES: {
		"it has something other than certificates in PEM and blanks", "",
	},
	v1.FailureDetail_FAILURE_DETAIL_BAD_CERTIFICATE: {"a certificate in it is incomplete or invalid", ""},
	v1.FailureDetail_FAILURE_DETAIL_MESSAGE_LIMIT: {
		"it does not fit into a NATS message (max_payload)",
		"the body from %s does not fit into a NATS message (max_payload)",
	},
	v1.FailureDetail_FAILURE_DETAIL_CONNECTION_REFUSED: {"connection refused", ""},
	v1.FailureDetail_FAILURE_DETAIL_NO_ROUTE:           {"no route to the host", ""},
	v1.FailureDetail_FAILURE_DETAIL_CLOSED:             {"no response", "%s closed the connection without a response"},
	v1.FailureDetail_FAILURE_DETAIL_CUT_OFF: {
		"incomplete response", "%s closed the connection before the response was complete",
	},
	v1.FailureDetail_FAILURE_DETAIL_PLAIN_HTTP: {
		"plain HTTP", "%s responded by plain HTTP to an https:// URL; " +
			"write http:// if that is meant (https:// is assumed where no scheme is written)",
	},
	v1.FailureDetail_FAILURE_DETAIL_NOT_HTTP: {
		"not valid HTTP (which curl may accept), or more than 64 KiB of headers", "",
	},
	v1.FailureDetail_FAILURE_DETAIL_CONNECT_TIMEOUT: {"no connection in time", ""},
	v1.FailureDetail_FAILURE_DETAIL_DNS_UNAVAILABLE: {
		"no DNS server answered", "the DNS lookup of %s failed: no DNS server answered",
	},
	v1.FailureDetail_FAILURE_DETAIL_BAD_GZIP: {
		"invalid gzip",
		"%s announced gzip (Content-Encoding), but the body is not valid gzip; have it fixed, or use another URL",
	},
	v1.FailureDetail_FAILURE_DETAIL_TRANSFER_ENCODING: {
		"an invalid Transfer-Encoding",
		"%s sent a Transfer-Encoding other than a single chunked, so the end of the body is uncertain; " +
			"have it fixed, or use another URL, even if curl accepts it",
	},
	v1.FailureDetail_FAILURE_DETAIL_HTTP2_ONLY: {
		"no HTTP/1.1", "%s does not speak HTTP/1.1, perhaps only HTTP/2; use the URL of a server that does",
	},
	v1.FailureDetail_FAILURE_DETAIL_CERTIFICATE_NAMELESS: {
		"it has only a common name; have one issued with the host as a subject alternative name", "",
	},
	v1.FailureDetail_FAILURE_DETAIL_CERTIFICATE_CHAIN: {
		"it is signed by an unknown authority, or the server does not send its intermediate certificate", "",
	},
	v1.FailureDetail_FAILURE_DETAIL_CLIENT_CERTIFICATE: {
		"the server asked for a client certificate, and none is configured for this URL and namespace", "",
	},
	v1.FailureDetail_FAILURE_DETAIL_CLIENT_CERTIFICATE_REFUSED: {
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
	if f.GetClass() != v1.FailureClass_FAILURE_CLASS_CONTENT_REJECTED ||
		f.GetDetail() == v1.FailureDetail_FAILURE_DETAIL_COSTLY {
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
