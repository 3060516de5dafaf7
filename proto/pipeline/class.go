package pipeline

import (
	"maps"
	"net/http"
	"slices"
	"strings"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
)

// Reasons of Events that are not failures of a fetch.
const (
	// ReasonDrifted: a key that we wrote was changed or removed.
	ReasonDrifted = "Drifted"
	// ReasonRepairBackOff: drift recurs, and repairs are slowed down.
	ReasonRepairBackOff = "RepairBackOff"
	// ReasonTooManyRemovals: a namespace removes too many keys at once, so the watcher stops the removals.
	ReasonTooManyRemovals = "TooManyRemovals"
	// ReasonAdjusted: an annotation is followed within an operator's limit.
	ReasonAdjusted = "AnnotationAdjusted"
	// ReasonUpdateAvailable: the URL of a pinned key with an interval has other content.
	ReasonUpdateAvailable = "UpdateAvailable"
	// ReasonPinned: a key got the content of its pin from the history.
	ReasonPinned = "Pinned"
	// ReasonRecovered: a failure is over.
	ReasonRecovered = "Recovered"
)

// Reason returns the Event reason of a failure class, which is also the token in a dead letter's
// subject and the value of metric labels: FAILURE_CLASS_KEY_EXISTS is KeyExists.
func Reason(c v1.FailureClass) string {
	name, known := v1.FailureClass_name[int32(c)]
	if !known || c == v1.FailureClass_FAILURE_CLASS_UNSPECIFIED {
		return "Unknown"
	}
	var reason strings.Builder
	for word := range strings.SplitSeq(strings.TrimPrefix(name, "FAILURE_CLASS_"), "_") {
		if word != "DNS" && word != "TLS" {
			word = word[:1] + strings.ToLower(word[1:])
		}
		reason.WriteString(word)
	}
	return reason.String()
}

// ClassOf is the inverse of Reason. Unknown reasons are unspecified.
func ClassOf(reason string) v1.FailureClass {
	for n := range v1.FailureClass_name {
		if c := v1.FailureClass(n); c != 0 && Reason(c) == reason {
			return c
		}
	}
	return v1.FailureClass_FAILURE_CLASS_UNSPECIFIED
}

// CauseName returns the name of a cause in metric labels and traces, such as refresh.
func CauseName(c v1.Cause) string { return strings.ToLower(strings.TrimPrefix(c.String(), "CAUSE_")) }

// WaitsForName returns the name of an obstacle in metric labels and logs, such as shared_get.
func WaitsForName(w v1.WaitsFor) string {
	return strings.ToLower(strings.TrimPrefix(w.String(), "WAITS_FOR_"))
}

// ofGETs has the classes of failed GETs, and whether all failures of a class are retried.
var ofGETs = map[v1.FailureClass]bool{
	v1.FailureClass_FAILURE_CLASS_ADDRESS_DENIED:     false,
	v1.FailureClass_FAILURE_CLASS_DNS_FAILED:         true,
	v1.FailureClass_FAILURE_CLASS_CONNECT_FAILED:     true,
	v1.FailureClass_FAILURE_CLASS_TLS_FAILED:         true,
	v1.FailureClass_FAILURE_CLASS_TIMEOUT:            true,
	v1.FailureClass_FAILURE_CLASS_TOO_MANY_REDIRECTS: false,
	v1.FailureClass_FAILURE_CLASS_BAD_STATUS:         false,
	v1.FailureClass_FAILURE_CLASS_BODY_TOO_LARGE:     false,
	v1.FailureClass_FAILURE_CLASS_BAD_RESPONSE:       false,
	v1.FailureClass_FAILURE_CLASS_CREDENTIALS_FAILED: true,
}

// GETFailures returns the classes of failed GETs.
func GETFailures() []v1.FailureClass { return slices.Sorted(maps.Keys(ofGETs)) }

// Retries reports whether a failure is retried with back-off, after that many attempts of at most
// limit in a row. If not, the key waits for its next refresh or recheck, and a dead letter holds
// the failure.
func Retries(f *v1.Failure, attempts, limit uint32) bool {
	if attempts >= limit || f.GetDetail() == v1.FailureDetail_FAILURE_DETAIL_PLAIN_HTTP {
		return false
	}
	if f.GetClass() == v1.FailureClass_FAILURE_CLASS_BAD_STATUS {
		return f.GetDetail() == v1.FailureDetail_FAILURE_DETAIL_RETRY_AFTER || retryStatus(int(f.GetStatusCode()))
	}
	// A busy fetcher exceeds the time limit of a cheap rule, too.
	return ofGETs[f.GetClass()] || f.GetDetail() == v1.FailureDetail_FAILURE_DETAIL_CUT_OFF ||
		f.GetDetail() == v1.FailureDetail_FAILURE_DETAIL_COSTLY
}

// retryStatus reports whether a status suggests another attempt (RFC 9110 section 15.5.9 and 15.6,
// RFC 6585 section 4, RFC 8470 section 5.2).
func retryStatus(code int) bool {
	switch code {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	case http.StatusNotImplemented, http.StatusHTTPVersionNotSupported:
		return false
	}
	return code >= 500 && code < 600
}
