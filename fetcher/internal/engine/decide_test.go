package engine

import (
	"cmp"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/kv8s/curl-me-that/fetcher/internal/get"
	"github.com/kv8s/curl-me-that/fetcher/internal/throttle"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/failure"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

var noon = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) *timestamppb.Timestamp { return timestamppb.New(noon.Add(-d)) }

// summary describes a decision in one line. The time of a refresh depends on its slot, so it is only bounded.
func summary(t *testing.T, s decision, interval time.Duration) string {
	t.Helper()
	text := []string{string(s.outcome) + ", " + s.disposition().String()}
	add := func(yes bool, format string, args ...any) {
		if yes {
			text[len(text)-1] += fmt.Sprintf(format, args...)
		}
	}
	if d := s.timer; d != nil {
		text = append(text, pipeline.CauseName(d.GetCause()))
		wait := s.at.Sub(noon)
		regular := d.GetCause() == v1.Cause_CAUSE_REFRESH && d.GetWaitsFor() == 0
		if regular && (wait <= 0 || wait > interval) {
			t.Errorf("the refresh comes after %s", wait)
		} else if !regular {
			add(true, " in %s", wait)
		}
		add(d.GetAttempts() > 0, " after %d", d.GetAttempts())
		add(d.GetReported() > 0, " %s %d", failure.Reason(d.GetReported()), d.GetStatusCode())
		add(d.GetWithheld(), " withheld")
		add(d.GetReportedAt() != nil, " reported %s ago", noon.Sub(d.GetReportedAt().AsTime()))
		add(d.GetFirstFailedAt() != nil, " failing for %s", noon.Sub(d.GetFirstFailedAt().AsTime()))
		add(d.GetGaveUp(), " gave up")
		add(d.GetWaitsFor() > 0, " waits for %s", strings.TrimPrefix(d.GetWaitsFor().String(), "WAITS_FOR_"))
		add(d.GetWaitingSince() != nil, " for %s", noon.Sub(d.GetWaitingSince().AsTime()))
		add(d.GetUnended() > 0, " begun %d times", d.GetUnended())
		add(d.GetCached() != nil, " has %s%s", d.GetCached().GetSha256(), d.GetCached().GetEtag())
		add(d.GetReplayOf() > 0, " replay")
		add(s.parking.queued, " queued")
		if d.GetWant().GetStatus() != "" || !d.GetWant().GetReadFirst() {
			t.Error("a timer has no status")
		}
		if c := d.GetCached(); int(c.GetSize()) != len(c.GetSha256()) { // a body is its digest here
			t.Errorf("the timer has the size %d of the body", c.GetSize())
		}
	}
	add(s.done, ", no timer")
	if r := s.result; r != nil {
		f := r.GetFailure()
		body := cmp.Or(string(r.GetContent().GetBody()), r.GetUnmodified().GetSha256())
		text = append(text, cmp.Or(body, failure.Reason(f.GetClass())))
		add(f != nil, " in attempt %d, next in %s", f.GetAttempts(), f.GetNextAt().AsTime().Sub(s.at)+s.wait)
		add(f.GetGaveUp(), ", gave up")
		add(f.GetAgain(), ", again")
		add(f.GetWaitsFor() > 0, ", as the host asked")
		add(r.GetWant().GetReadFirst(), ", read first")
	}
	if s.deadLetter != nil {
		text = append(text, "dead letter")
	}
	return strings.Join(text, " | ")
}

func TestDecide(t *testing.T) {
	const bad, timeout = v1.FailureClass_FAILURE_CLASS_BAD_STATUS, v1.FailureClass_FAILURE_CLASS_TIMEOUT
	const hour, minutes = time.Hour, 10 * time.Minute
	status := func(code int, after time.Duration) attemptEnd {
		e := get.Error{Class: bad, StatusCode: code, RetryAfter: after}
		if after > 0 {
			e.Detail = v1.FailureDetail_FAILURE_DETAIL_RETRY_AFTER
		}
		return failed(&fetchFailure{Error: e})
	}
	says := func(body string) attemptEnd {
		v := get.Validators{ETag: `"` + body + `"`}
		return responded(get.Response{Body: []byte(body), SHA256: body, Validators: v})
	}
	notModified := responded(get.Response{NotModified: true})
	queue := func(waitsFor v1.WaitsFor, pause time.Duration) attemptEnd {
		return queuedFor(throttle.Wait{For: waitsFor, Pause: pause})
	}
	has := func(body string) *v1.Due {
		cached := &v1.Cached{Sha256: body, Etag: `"` + body + `"`, Size: int64(len(body))}
		return &v1.Due{Cause: v1.Cause_CAUSE_REFRESH, Cached: cached}
	}
	hasA := func(d *v1.Due) { d.Cached = has("a").GetCached() }
	with := func(d *v1.Due, change func(*v1.Due)) *v1.Due { change(d); return d }
	failing := func(attempts uint32, change func(*v1.Due)) *v1.Due {
		return with(&v1.Due{
			Cause: v1.Cause_CAUSE_RETRY, Attempts: attempts, FirstFailedAt: ago(time.Minute), Reported: bad, StatusCode: 500,
		}, change)
	}
	withheld := func(d *v1.Due) { d.Withheld = true }
	reported := func(at time.Duration) func(*v1.Due) {
		return func(d *v1.Due) { d.ReportedAt, d.GaveUp, d.FirstFailedAt = ago(at), true, ago(at) }
	}
	schedule := Schedule{
		MaxAttempts: 4, MaxRetryAfter: hour, Recheck: hour, Refresh: Refresh{Min: time.Second},
		Retry: Backoff{Base: 2 * time.Second, Max: 5 * time.Minute},
	}
	for name, c := range map[string]struct {
		interval time.Duration
		past     *v1.Due
		took     time.Duration
		change   func(*v1.Want)
		end      attemptEnd
		want     string
	}{
		"a first body":  {end: says("a"), want: "content, ack, no timer | a"},
		"with refresh":  {interval: minutes, end: says("a"), want: `content, ack | refresh has a"a" | a`},
		"the same body": {interval: minutes, past: has("a"), end: says("a"), want: `unmodified, ack | refresh has a"a"`},
		"304":           {interval: minutes, past: has("a"), end: notModified, want: `unmodified, ack | refresh has a"a"`},
		"another body": {
			interval: minutes, past: has("a"), end: says("b"), want: `content, ack | refresh has b"b" | b, read first`,
		},
		"a short recovery": {
			interval: minutes, past: with(failing(1, withheld), hasA), end: says("a"),
			want: `unmodified, ack | refresh has a"a"`,
		},
		"a recovery": {
			interval: minutes, past: with(failing(3, reported(hour)), hasA), end: says("a"),
			want: `recovered, ack | refresh has a"a" | a, read first`,
		},
		"a body after a long time": {
			interval: minutes, past: has("a"), took: minutes, end: says("b"),
			want: `content, ack | refresh has a"a" | b, read first`,
		},
		"another digest": {
			past: has("a"), change: func(w *v1.Want) { w.Sha256 = "a" }, end: says("evil"),
			want: "gave_up, ack | recheck in 1h0m0s DigestMismatch 0 reported 0s ago failing for 0s gave up has a" +
				" | DigestMismatch in attempt 1, next in WAIT, gave up, read first | dead letter",
		},
		"other content than the pinned one, with an interval": {
			interval: minutes, past: has("a"), change: func(w *v1.Want) { w.Sha256 = "a" }, end: says("evil"),
			want: `content, ack | refresh has evil"evil" | evil, read first`,
		},
		"in sync": {
			interval: minutes, change: func(w *v1.Want) { w.Cached = has("a").GetCached() }, end: skipped(outcomeInSync),
			want: `in_sync, ack | refresh has a"a"`,
		},
		"in sync without refresh": {
			change: func(w *v1.Want) { w.Cached = has("a").GetCached() }, end: skipped(outcomeInSync),
			want: "in_sync, ack",
		},

		"a first failure": {
			end:  status(500, 0),
			want: "retry, ack | retry in 2s after 1 BadStatus 500 withheld failing for 0s",
		},
		"a failure after a long time": {
			took: minutes, end: status(500, 0),
			want: "retry, ack | retry in 2s after 1 failing for 0s",
		},
		"a second one": {
			past: failing(1, withheld), end: status(502, 0), want: "retry, ack" +
				" | retry in 4s after 2 BadStatus 502 withheld failing for 1m0s",
		},
		"a third one": {
			past: failing(2, withheld), end: status(500, 0),
			want: "retry, ack | retry in 8s after 3 BadStatus 500 reported 0s ago failing for 1m0s" +
				" | BadStatus in attempt 3, next in 8s, read first",
		},
		"the last one": {
			past: failing(3, reported(time.Minute)), end: status(500, 0),
			want: "gave_up, ack | recheck in 1h0m0s BadStatus 500 reported 0s ago failing for 1m0s gave up" +
				" | BadStatus in attempt 4, next in 1h0m0s, gave up, read first | dead letter",
		},
		"a withheld failure after a reported one": {
			interval: minutes, past: failing(0, reported(time.Minute)),
			end:  failed(&fetchFailure{Error: get.Error{Class: timeout}}),
			want: "retry, ack | retry in 2s after 1 BadStatus 500 reported 1m0s ago failing for 1m0s gave up",
		},
		"a useless retry": {
			interval: minutes, end: status(404, 0),
			want: "gave_up, ack | refresh BadStatus 404 reported 0s ago failing for 0s gave up" +
				" | BadStatus in attempt 1, next in WAIT, gave up | dead letter",
		},
		"the same again": {
			interval: minutes, past: failing(0, reported(5*time.Minute)), end: status(404, 0),
			want: "gave_up, ack | refresh BadStatus 404 reported 5m0s ago failing for 5m0s gave up | dead letter",
		},
		"the same again after half an hour": {
			past: failing(0, reported(30*time.Minute)), end: status(404, 0), want: "gave_up, ack" +
				" | recheck in 1h0m0s BadStatus 404 reported 0s ago" +
				" failing for 30m0s gave up | BadStatus in attempt 1, next in 1h0m0s, gave up, again, read first | dead letter",
		},
		"the same when the key becomes stale": {
			interval: 5 * time.Minute, past: failing(0, reported(16*time.Minute)), end: status(404, 0), want: "gave_up, ack" +
				" | refresh BadStatus 404 reported 0s ago" +
				" failing for 16m0s gave up | BadStatus in attempt 1, next in WAIT, gave up, again, read first | dead letter",
		},
		"the same after a credential was added": {
			past: with(failing(0, reported(time.Minute)), func(d *v1.Due) { d.Detail = failure.NoCredential }),
			end:  status(401, 0),
			want: "gave_up, ack | recheck in 1h0m0s BadStatus 401 reported 0s ago failing for 1m0s gave up" +
				" | BadStatus in attempt 1, next in 1h0m0s, gave up, again, read first | dead letter",
		},
		"the same for a replay": {
			past: with(failing(0, reported(time.Minute)), func(d *v1.Due) { d.ReplayOf = 7 }), end: status(404, 0),
			want: "gave_up, ack | recheck in 1h0m0s BadStatus 404 reported 0s ago failing for 1m0s gave up" +
				" | BadStatus in attempt 1, next in 1h0m0s, gave up, again, read first | dead letter",
		},
		"a failed fetch on demand": {
			change: func(w *v1.Want) { w.Cause = v1.Cause_CAUSE_NOW }, end: status(404, 0),
			want: "gave_up, ack | recheck in 1h0m0s BadStatus 404 reported 0s ago failing for 0s gave up" +
				" | BadStatus in attempt 1, next in 1h0m0s, gave up, again | dead letter",
		},
		"a failure with a body": {
			interval: minutes, past: has("a"), end: status(503, 0), want: "retry, ack" +
				" | retry in 2s after 1 BadStatus 503 withheld failing for 0s has a",
		},
		"a short pause": {
			end:  status(429, 30*time.Second),
			want: "retry, ack | retry in 30.2s after 1 BadStatus 429 withheld failing for 0s waits for PAUSE",
		},
		"a long pause": {
			end: status(403, 20*time.Minute), want: "retry, ack" +
				" | retry in 20m0.2s after 1 BadStatus 403 reported 0s ago failing for 0s" +
				" waits for PAUSE | BadStatus in attempt 1, next in 20m0.2s, as the host asked",
		},
		"too long a pause": {
			interval: minutes, past: failing(3, withheld), end: status(503, 24*hour), want: "gave_up, ack" +
				" | refresh in 1h0m0s BadStatus 503 reported 0s ago" +
				" failing for 1m0s gave up waits for PAUSE | BadStatus in attempt 4, next in 1h0m0s, gave up, as the host asked" +
				", read first" +
				" | dead letter",
		},

		"no slot": {
			end:  queue(v1.WaitsFor_WAITS_FOR_HOST, 0),
			want: "parked, ack | parked in 40s waits for HOST for 0s queued",
		},
		"its lease": {
			past: &v1.Due{WaitingSince: ago(hour), Unended: 2, WaitsFor: v1.WaitsFor_WAITS_FOR_HOST}, end: queue(0, 0),
			want: "queued, ack | parked in 57s waits for HOST for 1h0m0s begun 2 times queued",
		},
		"a pause": {
			end:  queue(v1.WaitsFor_WAITS_FOR_PAUSE, 2*time.Minute),
			want: "parked, ack | parked in 2m4s waits for PAUSE for 0s",
		},
		"no budget": {
			past: failing(2, withheld), end: parkedFor(throttle.Wait{
				For: v1.WaitsFor_WAITS_FOR_NAMESPACE_BYTES, Pause: time.Minute,
			}),
			want: "parked, ack | parked in 1m0s after 2 BadStatus 500 withheld failing for 1m0s waits for NAMESPACE_BYTES",
		},
		"poison": {
			end: failed(poisoned()), want: "gave_up, ack" +
				" | recheck in 1h0m0s Poison 0 reported 0s ago failing for 0s gave up" +
				" | Poison in attempt 1, next in 1h0m0s, gave up | dead letter",
		},
		"a replaced want":   {end: skipped(outcomeSuperseded), want: "superseded, ack"},
		"a lagging replica": {end: postponedFor(1), want: "postponed, retry"},
		"a drain":           {end: postponedFor(0), want: "postponed, give_back"},
		"garbage": {
			end: undecodable(nil), want: "malformed, dead_letter",
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := &trigger{
				want: &v1.Want{Url: "https://e.example.com/", Refresh: durationpb.New(c.interval), Status: "{}"},
				due:  cmp.Or(c.past, &v1.Due{}), readFirst: c.past != nil, began: noon.Add(-c.took),
			}
			if c.change != nil {
				c.change(m.want)
			}
			s := schedule.decide(m, c.end, noon, 0.5)
			want := strings.ReplaceAll(c.want, "WAIT", s.wait.String())
			if got := summary(t, s, c.interval); got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		})
	}
}

func failedWith(class v1.FailureClass, code int) *fetchFailure {
	return &fetchFailure{Error: get.Error{Class: class, StatusCode: code}}
}
