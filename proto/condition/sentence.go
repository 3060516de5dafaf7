package condition

import (
	"cmp"
	"regexp"
	"strconv"
	"time"

	"github.com/kv8s/curl-me-that/proto/annotation/duration"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// Host returns the host of a URL for a sentence, as pipeline.HostOf does.
func Host(url string) string {
	if host := pipeline.HostOf(url); host != "" {
		return host
	}
	return "the host in the URL"
}

// Sentence says why a fetch from url failed. It contains no address, no query, and
// of the response only the status.
func Sentence(url string, f *v1.Failure) string {
	text := class(Host(url), f)
	separator := ": "
	if f.GetClass() == v1.FailureClass_FAILURE_CLASS_BAD_STATUS {
		separator = "; "
	}
	if detail := Detail(f); detail != "" {
		text += separator + detail
	}
	return text
}

func class(host string, f *v1.Failure) string {
	switch f.GetClass() {
	case v1.FailureClass_FAILURE_CLASS_ADDRESS_DENIED:
		return "fetching from " + host + " is not allowed"
	case v1.FailureClass_FAILURE_CLASS_DNS_FAILED:
		return host + " was not found in DNS"
	case v1.FailureClass_FAILURE_CLASS_CONNECT_FAILED:
		return "could not connect to " + host
	case v1.FailureClass_FAILURE_CLASS_TLS_FAILED:
		return "TLS handshake with " + host + " failed"
	case v1.FailureClass_FAILURE_CLASS_TIMEOUT:
		return host + " did not respond in time"
	case v1.FailureClass_FAILURE_CLASS_TOO_MANY_REDIRECTS:
		return "a redirect from " + host + " was not followed"
	case v1.FailureClass_FAILURE_CLASS_BAD_STATUS:
		return host + " responded with " + strconv.Itoa(int(f.GetStatusCode())) + credential(f)
	case v1.FailureClass_FAILURE_CLASS_CREDENTIALS_FAILED:
		return cmp.Or(source(f), "the token URL") + " gave no token for " + host
	case v1.FailureClass_FAILURE_CLASS_BODY_TOO_LARGE:
		return "the body from " + host + " is too large"
	case v1.FailureClass_FAILURE_CLASS_DIGEST_MISMATCH:
		return "the body from " + host + " does not match curl-sha256"
	case v1.FailureClass_FAILURE_CLASS_BAD_RESPONSE:
		return host + " sent an invalid response"
	case v1.FailureClass_FAILURE_CLASS_POISON:
		return "the request to " + host + " could not be completed"
	default:
		return "the request to " + host + " failed"
	}
}

// credential says which credential a server refused.
func credential(f *v1.Failure) string {
	if source(f) == "" {
		return ""
	}
	return "; the credential of " + source(f) + " was sent"
}

// sources matches every source of a credential, because a fetcher may be compromised.
var sources = regexp.MustCompile(`^((entry [0-9]{1,5} of the header file)|(Secret )?[a-z0-9.-]{1,253})$`)

func source(f *v1.Failure) string { return sources.FindString(f.GetCredential()) }

// KeyExists says that somebody else wrote a key.
func KeyExists(key string) string {
	return "key " + key + " already exists and was not written by curl-me-that; it is kept until somebody removes it"
}

// NoRoom says why the status of a ConfigMap is not written.
const NoRoom = "the annotations of the ConfigMap leave no room for curl-status (limit 256 KiB)"

// Unwritten says why the body from url is not written to a key, for a class that the
// writer reports.
func Unwritten(class v1.FailureClass, url, key string) string {
	switch class {
	case v1.FailureClass_FAILURE_CLASS_KEY_EXISTS:
		return KeyExists(key)
	case v1.FailureClass_FAILURE_CLASS_IMMUTABLE:
		return "the ConfigMap is immutable; key " + key + " cannot be written"
	case v1.FailureClass_FAILURE_CLASS_BODY_TOO_LARGE:
		return "the ConfigMap would exceed its size limit with the body from " + Host(url)
	case v1.FailureClass_FAILURE_CLASS_WRITE_FAILED:
		return "the API server refused to write the body from " + Host(url)
	default:
		return Sentence(url, &v1.Failure{Class: class})
	}
}

// Value says what a key holds while it fails.
func Value(key string, written bool) string {
	if written {
		return "key " + key + " keeps its last good value"
	}
	return "key " + key + " has no value yet"
}

// Detail returns the details of a failure beyond its class, in words; empty if there
// are none.
func Detail(f *v1.Failure) string {
	text := details[f.GetDetail()]
	if f.GetLimitBytes() > 0 {
		text = "the limit is " + strconv.FormatInt(f.GetLimitBytes(), 10) + " bytes"
	}
	if n := f.GetRedirects(); n > 0 && f.GetClass() == v1.FailureClass_FAILURE_CLASS_ADDRESS_DENIED && text != "" {
		return "at redirect " + strconv.Itoa(int(n)) + ", " + text
	}
	return text
}

// Terminal reports whether only an edit of the URL or of the operator's policy can help:
// neither DNS nor a server decides.
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

// details are the words for each detail.
var details = map[v1.FailureDetail]string{
	v1.FailureDetail_FAILURE_DETAIL_CERTIFICATE_AUTHORITY: "the certificate is signed by an unknown authority",
	v1.FailureDetail_FAILURE_DETAIL_CERTIFICATE_HOST:      "the certificate is for another host",
	v1.FailureDetail_FAILURE_DETAIL_CERTIFICATE_TIME:      "the certificate has expired or is not yet valid",
	v1.FailureDetail_FAILURE_DETAIL_CERTIFICATE_INVALID:   "the certificate is not valid",
	v1.FailureDetail_FAILURE_DETAIL_HANDSHAKE:             "the server refused it or does not speak TLS",
	v1.FailureDetail_FAILURE_DETAIL_REDIRECT_LIMIT:        "the limit is reached",
	v1.FailureDetail_FAILURE_DETAIL_REDIRECT_DOWNGRADE:    "it leads from https to http",
	v1.FailureDetail_FAILURE_DETAIL_REDIRECT_LOCATION:     "it has no usable Location",
	v1.FailureDetail_FAILURE_DETAIL_CONTENT_ENCODING:      "a Content-Encoding that was not requested",
	v1.FailureDetail_FAILURE_DETAIL_PROXY:                 "the egress proxy refused the connection",
	v1.FailureDetail_FAILURE_DETAIL_DENIED_SCHEME:         "the scheme is neither http nor https",
	v1.FailureDetail_FAILURE_DETAIL_DENIED_HOST:           "the operator denies the host",
	v1.FailureDetail_FAILURE_DETAIL_HOST_NOT_ALLOWED:      "the operator does not allow the host",
	v1.FailureDetail_FAILURE_DETAIL_DENIED_NAME:           "the host name has a single label or a reserved suffix",
	v1.FailureDetail_FAILURE_DETAIL_DENIED_PORT:           "the port is not allowed",
	v1.FailureDetail_FAILURE_DETAIL_DENIED_ADDRESS:        "it has no public address",
	v1.FailureDetail_FAILURE_DETAIL_DENIED_RANGE:          "the operator denies its address",
	v1.FailureDetail_FAILURE_DETAIL_DENIED_URL:            "this form of URL is not supported",
	v1.FailureDetail_FAILURE_DETAIL_DENIED_CREDENTIALS:    "credentials are sent only for wants that the watcher signed",
	v1.FailureDetail_FAILURE_DETAIL_NO_CREDENTIAL:         "no credential is configured for this URL and namespace",
	v1.FailureDetail_FAILURE_DETAIL_MESSAGE_LIMIT:         "it does not fit into a NATS message (max_payload)",
}

// Next says when the next attempt after a failure is, which was observed at a time; empty
// if that is not known. Times are UTC, to the minute. The sentence stays true if the same
// failure is observed again later.
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
	text := "giving up after " + attempts(f.GetAttempts()) + "; next try at " + at.UTC().Format("15:04") + " UTC" + asked
	if every := f.GetInterval().AsDuration(); every > 0 {
		text += ", then " + frequency(every)
	}
	return text
}

// WhyEmpty returns the section of the page "Why is my key empty?" (deploy/docs/why-empty.md) that
// explains a failure, such as "why-empty 8"; empty if there is none.
func WhyEmpty(c v1.FailureClass) string {
	n, found := sections[c]
	if !found {
		return ""
	}
	return "why-empty " + strconv.Itoa(n)
}

// sections are the numbers of the headings of deploy/docs/why-empty.md. They do not change.
var sections = map[v1.FailureClass]int{
	v1.FailureClass_FAILURE_CLASS_INVALID_ANNOTATION: 2,
	v1.FailureClass_FAILURE_CLASS_KEY_EXISTS:         3,
	v1.FailureClass_FAILURE_CLASS_ADDRESS_DENIED:     4,
	v1.FailureClass_FAILURE_CLASS_DNS_FAILED:         5,
	v1.FailureClass_FAILURE_CLASS_CONNECT_FAILED:     6,
	v1.FailureClass_FAILURE_CLASS_TIMEOUT:            6,
	v1.FailureClass_FAILURE_CLASS_TLS_FAILED:         7,
	v1.FailureClass_FAILURE_CLASS_BAD_STATUS:         8,
	v1.FailureClass_FAILURE_CLASS_CREDENTIALS_FAILED: 8,
	v1.FailureClass_FAILURE_CLASS_TOO_MANY_REDIRECTS: 8,
	v1.FailureClass_FAILURE_CLASS_BAD_RESPONSE:       8,
	v1.FailureClass_FAILURE_CLASS_BODY_TOO_LARGE:     9,
	v1.FailureClass_FAILURE_CLASS_DIGEST_MISMATCH:    9,
	v1.FailureClass_FAILURE_CLASS_WRITE_FAILED:       10,
	v1.FailureClass_FAILURE_CLASS_IMMUTABLE:          10,
}

func frequency(every time.Duration) string {
	if every == time.Hour {
		return "hourly"
	}
	return "every " + duration.Format(every)
}

func attempts(n uint32) string {
	if n == 1 {
		return "1 attempt"
	}
	return strconv.Itoa(int(n)) + " attempts"
}

// rounded formats a wait in whole seconds, from 2 min on in whole minutes.
func rounded(d time.Duration) string {
	unit := time.Second
	if d >= 2*time.Minute {
		unit = time.Minute
	}
	return duration.Format(max(d.Round(unit), time.Second))
}

// WaitsFor returns the reason why an attempt for url waits, in words; empty if it does not.
func WaitsFor(w v1.WaitsFor, url string) string {
	switch w {
	case v1.WaitsFor_WAITS_FOR_PAUSE:
		return "pause of " + Host(url)
	case v1.WaitsFor_WAITS_FOR_HOST:
		return "slot of " + Host(url)
	case v1.WaitsFor_WAITS_FOR_NAMESPACE_SHARE:
		return "share of the namespace"
	case v1.WaitsFor_WAITS_FOR_NAMESPACE_BYTES:
		return "bytes of the namespace"
	case v1.WaitsFor_WAITS_FOR_SHARED_GET:
		return "GET of the same"
	case v1.WaitsFor_WAITS_FOR_SLOTS:
		return "slot of the fetcher"
	case v1.WaitsFor_WAITS_FOR_UNSPECIFIED:
	}
	return ""
}
