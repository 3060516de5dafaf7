package condition

import (
	"strconv"
	"time"

	"github.com/kv8s/curl-me-that/proto/annotation/duration"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// Host returns the name of the host of a URL as pipeline.HostOf does, for a
// sentence.
func Host(url string) string {
	if host := pipeline.HostOf(url); host != "" {
		return host
	}
	return "the host in the URL"
}

// Sentence states what went wrong with a fetch from url. It carries no address,
// no query and nothing that the server sent but its status.
func Sentence(url string, f *v1.Failure) string {
	text := class(Host(url), f)
	if detail := Detail(f); detail != "" {
		text += ": " + detail
	}
	return text
}

func class(host string, f *v1.Failure) string {
	switch f.GetClass() {
	case v1.FailureClass_FAILURE_CLASS_ADDRESS_DENIED:
		return host + " may not be visited"
	case v1.FailureClass_FAILURE_CLASS_DNS_FAILED:
		return host + " was not found in the DNS"
	case v1.FailureClass_FAILURE_CLASS_CONNECT_FAILED:
		return host + " could not be connected to"
	case v1.FailureClass_FAILURE_CLASS_TLS_FAILED:
		return host + " offered no connection by TLS that can be trusted"
	case v1.FailureClass_FAILURE_CLASS_TIMEOUT:
		return host + " did not answer in time"
	case v1.FailureClass_FAILURE_CLASS_TOO_MANY_REDIRECTS:
		return host + " redirects too often, or to where it may not be followed"
	case v1.FailureClass_FAILURE_CLASS_BAD_STATUS:
		return host + " answered " + strconv.Itoa(int(f.GetStatusCode()))
	case v1.FailureClass_FAILURE_CLASS_BODY_TOO_LARGE:
		return host + " sent more than is allowed"
	case v1.FailureClass_FAILURE_CLASS_DIGEST_MISMATCH:
		return host + " sent something else than curl-sha256 names"
	case v1.FailureClass_FAILURE_CLASS_BAD_RESPONSE:
		return host + " sent an answer that cannot be used"
	case v1.FailureClass_FAILURE_CLASS_POISON:
		return "the request to " + host + " could not be finished"
	default:
		return "the request to " + host + " failed"
	}
}

// KeyExists states that a key is left alone, as somebody else has written it.
func KeyExists(key string) string {
	return "key " + key + " exists already and was not written by curl-me-that; it is left as it is until somebody removes it"
}

// NoRoom states why the status of a ConfigMap is not written.
const NoRoom = "the annotations of the ConfigMap, 256 KiB at most, leave no room for curl-status"

// Unwritten states why what url answered is not written to a key, for a class that the
// writer meets.
func Unwritten(class v1.FailureClass, url, key string) string {
	switch class {
	case v1.FailureClass_FAILURE_CLASS_KEY_EXISTS:
		return KeyExists(key)
	case v1.FailureClass_FAILURE_CLASS_IMMUTABLE:
		return "the ConfigMap is immutable; key " + key + " cannot be written"
	case v1.FailureClass_FAILURE_CLASS_BODY_TOO_LARGE:
		return "with the answer of " + Host(url) + " the ConfigMap would be larger than the API server allows"
	case v1.FailureClass_FAILURE_CLASS_WRITE_FAILED:
		return "the API server refuses to write the answer of " + Host(url)
	default:
		return Sentence(url, &v1.Failure{Class: class})
	}
}

// Value states what a key holds while it fails.
func Value(key string, written bool) string {
	if written {
		return "key " + key + " keeps its last good value"
	}
	return "key " + key + " has no value yet"
}

// Detail returns what is known of a failure beyond its class, in words; empty:
// nothing.
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

// Terminal reports whether each later look fails alike until the URL or the policy of the
// operator is edited: they alone decide, and neither the DNS nor a server nor the watcher.
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

// details are the words for what is known of a failure beyond its class.
var details = map[v1.FailureDetail]string{
	v1.FailureDetail_FAILURE_DETAIL_CERTIFICATE_AUTHORITY: "the certificate is signed by an unknown authority",
	v1.FailureDetail_FAILURE_DETAIL_CERTIFICATE_HOST:      "the certificate is for another host",
	v1.FailureDetail_FAILURE_DETAIL_CERTIFICATE_TIME:      "the certificate has expired or is not yet valid",
	v1.FailureDetail_FAILURE_DETAIL_CERTIFICATE_INVALID:   "the certificate is not valid",
	v1.FailureDetail_FAILURE_DETAIL_HANDSHAKE:             "the TLS handshake did not succeed",
	v1.FailureDetail_FAILURE_DETAIL_REDIRECT_LIMIT:        "more redirects than are followed",
	v1.FailureDetail_FAILURE_DETAIL_REDIRECT_DOWNGRADE:    "redirected from https to http",
	v1.FailureDetail_FAILURE_DETAIL_REDIRECT_LOCATION:     "a redirect without a usable Location",
	v1.FailureDetail_FAILURE_DETAIL_CONTENT_ENCODING:      "a Content-Encoding that was not asked for",
	v1.FailureDetail_FAILURE_DETAIL_PROXY:                 "the egress proxy was not passed",
	v1.FailureDetail_FAILURE_DETAIL_DENIED_SCHEME:         "the scheme is neither http nor https",
	v1.FailureDetail_FAILURE_DETAIL_DENIED_HOST:           "the host is on the operator's list of denied hosts",
	v1.FailureDetail_FAILURE_DETAIL_HOST_NOT_ALLOWED:      "the host is not on the operator's list of hosts",
	v1.FailureDetail_FAILURE_DETAIL_DENIED_NAME:           "the host has a single label or a reserved suffix",
	v1.FailureDetail_FAILURE_DETAIL_DENIED_PORT:           "the port is not allowed",
	v1.FailureDetail_FAILURE_DETAIL_DENIED_ADDRESS:        "the host has no public address",
	v1.FailureDetail_FAILURE_DETAIL_DENIED_RANGE:          "the host has an address that the operator denies",
	v1.FailureDetail_FAILURE_DETAIL_DENIED_URL:            "the URL is not of a form that is fetched",
	v1.FailureDetail_FAILURE_DETAIL_DENIED_CREDENTIALS:    "its credentials go only with what the watcher has signed",
	v1.FailureDetail_FAILURE_DETAIL_MESSAGE_LIMIT:         "it does not fit into a message of the broker (max_payload)",
}

// Next states what comes after a failure that was observed at a time; empty:
// that is not known. Times are UTC, to the minute. It stays true when the same
// failure is observed again at a later look.
func Next(f *v1.Failure, observed time.Time) string {
	if f.GetNextAt() == nil {
		return ""
	}
	at := f.GetNextAt().AsTime()
	asked := ""
	if f.GetWaitsFor() == v1.WaitsFor_WAITS_FOR_PAUSE {
		asked = ", as the host asks"
	}
	if !f.GetGaveUp() {
		return "tried again in " + rounded(at.Sub(observed)) + asked
	}
	text := "gave up after " + attempts(f.GetAttempts()) + ", next look " + at.UTC().Format("15:04") + " UTC" + asked
	if every := f.GetInterval().AsDuration(); every > 0 {
		text += ", then every " + duration.Format(every)
	}
	return text
}

// Cause returns the short name of the cause of a failure in the page "Why is my
// key empty?" (deploy/docs/why-empty.md), such as "why-empty 8", for the end of a
// sentence; empty: the page has none.
func Cause(c v1.FailureClass) string {
	n, found := causes[c]
	if !found {
		return ""
	}
	return "why-empty " + strconv.Itoa(n)
}

// causes are the numbers of the headings of deploy/docs/why-empty.md. They do not change.
var causes = map[v1.FailureClass]int{
	v1.FailureClass_FAILURE_CLASS_INVALID_ANNOTATION: 2,
	v1.FailureClass_FAILURE_CLASS_KEY_EXISTS:         3,
	v1.FailureClass_FAILURE_CLASS_ADDRESS_DENIED:     4,
	v1.FailureClass_FAILURE_CLASS_DNS_FAILED:         5,
	v1.FailureClass_FAILURE_CLASS_CONNECT_FAILED:     6,
	v1.FailureClass_FAILURE_CLASS_TIMEOUT:            6,
	v1.FailureClass_FAILURE_CLASS_TLS_FAILED:         7,
	v1.FailureClass_FAILURE_CLASS_BAD_STATUS:         8,
	v1.FailureClass_FAILURE_CLASS_TOO_MANY_REDIRECTS: 8,
	v1.FailureClass_FAILURE_CLASS_BAD_RESPONSE:       8,
	v1.FailureClass_FAILURE_CLASS_BODY_TOO_LARGE:     9,
	v1.FailureClass_FAILURE_CLASS_DIGEST_MISMATCH:    9,
	v1.FailureClass_FAILURE_CLASS_WRITE_FAILED:       10,
	v1.FailureClass_FAILURE_CLASS_IMMUTABLE:          10,
}

func attempts(n uint32) string {
	if n == 1 {
		return "1 attempt"
	}
	return strconv.Itoa(int(n)) + " attempts"
}

// rounded writes a wait for a sentence: in whole seconds, from 2 min on in whole
// minutes.
func rounded(d time.Duration) string {
	unit := time.Second
	if d >= 2*time.Minute {
		unit = time.Minute
	}
	return duration.Format(max(d.Round(unit), time.Second))
}

// WaitsFor returns what an attempt for url waits for, in words; empty: nothing.
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
	case v1.WaitsFor_WAITS_FOR_UNSPECIFIED:
	}
	return ""
}
