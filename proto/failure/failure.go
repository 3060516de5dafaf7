// Package failure has the vocabulary of failures: classes, details, reasons, retries and when a key is stale.
package failure

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

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
	if !known || c == Unspecified {
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
	return Unspecified
}

// ofGETs has the classes of failed GETs, and whether all failures of a class are retried.
var ofGETs = map[v1.FailureClass]bool{
	AddressDenied:     false,
	DNSFailed:         true,
	ConnectFailed:     true,
	TLSFailed:         true,
	Timeout:           true,
	TooManyRedirects:  false,
	BadStatus:         false,
	BodyTooLarge:      false,
	BadResponse:       false,
	CredentialsFailed: true,
}

// GETFailures returns the classes of failed GETs.
func GETFailures() []v1.FailureClass { return slices.Sorted(maps.Keys(ofGETs)) }

// Retries reports whether a failure is retried with back-off, after that many attempts of at most
// limit in a row. If not, the key waits for its next refresh or recheck, and a dead letter holds
// the failure.
func Retries(f *v1.Failure, attempts, limit uint32) bool {
	if attempts >= limit || f.GetDetail() == PlainHTTP {
		return false
	}
	if f.GetClass() == BadStatus {
		return f.GetDetail() == RetryAfter || retryStatus(int(f.GetStatusCode()))
	}
	// A busy fetcher exceeds the time limit of a cheap rule, too.
	return ofGETs[f.GetClass()] || f.GetDetail() == CutOff || f.GetDetail() == Costly
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

// StaleIntervals is the number of intervals without a successful fetch after which a key is stale.
const StaleIntervals = 3

// StaleDue reports whether the last successful fetch of a key with that interval is more than
// StaleIntervals ago, according to the payload of its timer.
func StaleDue(due *v1.Due, interval time.Duration, now time.Time) bool {
	switch {
	case interval <= 0:
		return false
	case due.GetFreshUntil() != nil: // one interval after the last successful fetch
		return now.Sub(due.GetFreshUntil().AsTime()) > (StaleIntervals-1)*interval
	case due.GetFirstFailedAt() != nil:
		return FailsForLong(due.GetFirstFailedAt().AsTime(), interval, now)
	}
	return false
}

// FailsForLong reports whether a key with that interval is stale because it has been failing since
// that time.
func FailsForLong(since time.Time, interval time.Duration, now time.Time) bool {
	return interval > 0 && !since.IsZero() && now.Sub(since) > StaleIntervals*interval
}
