// Package sentence has the sentences about the state of a key that Events, the status annotation, curlctl and logs
// share.
package sentence

import (
	"cmp"
	neturl "net/url"
	"strconv"
	"time"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/duration"
	"github.com/kv8s/curl-me-that/proto/failure"
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

// WaitsFor says what an attempt for url waits for (empty: only for its time).
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
