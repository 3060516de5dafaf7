package audit

import (
	"testing"
	"time"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/watcher/internal/wantindex"
)

func TestClassify(t *testing.T) {
	t.Parallel()
	const i = interval(2 * time.Minute)
	now := time.Unix(1_000_000, 0)
	held := func(o *observation) { o.held, o.sha256 = true, "old" }
	notHeld := func(o *observation) { o.held = false }
	failing := func(o *observation) { o.failure = "Timeout" }
	rejected := func(o *observation) { o.failure, o.rejected = "ContentRejected", true }
	suspected := func(o *observation) { o.suspected = true }
	wasLanding := func(o *observation) { o.suspected, o.wasLanding = true, true }
	ahead := func(o *observation) { o.ahead = true }
	timer := func(c v1.Cause, body string) func(*pending) {
		return func(p *pending) {
			p.timer, p.at, p.timerLost = &v1.Due{Cause: c, Cached: &v1.Cached{Sha256: body}}, now.Add(time.Hour), false
		}
	}
	retry, refresh := timer(v1.Cause_CAUSE_RETRY, ""), timer(v1.Cause_CAUSE_REFRESH, "")
	same, other := timer(v1.Cause_CAUSE_REFRESH, "old"), timer(v1.Cause_CAUSE_REFRESH, "new")
	reported := func(p *pending) { p.timer.Reported = v1.FailureClass_FAILURE_CLASS_TIMEOUT }
	unsigned := func(p *pending) { p.timer.Detail = v1.FailureDetail_FAILURE_DETAIL_DENIED_CREDENTIALS }
	soon := func(p *pending) { p.at = now.Add(time.Minute) }
	overdue := func(p *pending) { p.timerLost = true }
	recent := func(p *pending) { p.recent = true }
	due := func(c v1.Cause) func(*pending) {
		return func(p *pending) { p.inFlight, p.fired = true, &v1.Due{Cause: c} }
	}
	forced := func(w *wantindex.Want) { w.ByNow = true }
	type around struct{ queued, repaired bool }
	queued, repaired := func(a *around) { a.queued = true }, func(a *around) { a.repaired = true }
	for _, tt := range []struct {
		name string
		with []any
		want verdict
		wait time.Duration
	}{
		{"never fetched", nil, bodyLost, 0},
		{"fetched, never written", []any{other}, bodyLost, 0},
		{"fetched, and in the queue", []any{other, queued}, inFlight, time.Minute},
		{"fetched, never written, the plan repairs it", []any{other, repaired}, inFlight, time.Minute},
		{"fetched just now", []any{other, recent}, landing, 30 * time.Second},
		{"fetched just now, landing before", []any{other, recent, wasLanding}, bodyLost, 0},
		{"retried in an hour", []any{retry}, scheduled, 10 * time.Minute},
		{"retried in a minute", []any{retry, soon}, scheduled, 2 * time.Minute},
		{"retry overdue", []any{retry, overdue}, bodyLost, 0},
		{"parked", []any{timer(v1.Cause_CAUSE_PARKED, "")}, scheduled, 10 * time.Minute},
		{"failing, with its recheck", []any{refresh, reported, failing}, scheduled, 10 * time.Minute},
		{"failing, not in the status", []any{refresh, reported}, bodyLost, 0},
		{"failing in the status, the last fetch was good", []any{refresh, failing}, bodyLost, 0},
		{"rejected by the writer, with its refresh", []any{other, rejected}, scheduled, 10 * time.Minute},
		{"rejected by the writer, no refresh", []any{overdue, rejected}, bodyLost, 0},
		{"a retry in flight", []any{due(v1.Cause_CAUSE_RETRY)}, inFlight, time.Minute},
		{"a refresh in flight", []any{due(v1.Cause_CAUSE_REFRESH)}, landing, 30 * time.Second},
		{"a refresh in flight, landing before", []any{due(v1.Cause_CAUSE_REFRESH), wasLanding}, bodyLost, 0},
		{"unsigned", []any{refresh, unsigned}, bodyLost, 0},
		{"unsigned, in flight", []any{refresh, unsigned, due(v1.Cause_CAUSE_RETRY)}, bodyLost, 0},
		{"forced, equal body", []any{same, forced, held, notHeld}, inOrder, 0},
		{"forced, another body", []any{other, forced}, bodyLost, 0},
		{"forced, the timer is lost", []any{same, overdue, forced, held, notHeld}, bodyLost, 0},

		{"held, to be refreshed", []any{held, same}, inOrder, 0},
		{"held, digest unknown", []any{held, refresh}, inOrder, 0},
		{"held, digest unknown, suspected before", []any{held, refresh, suspected}, bodyLost, 0},
		{"held, no timer", []any{held}, inOrder, 0},
		{"held, no timer in the stream", []any{held, overdue}, timerLost, 0},
		{"held, no timer, in the queue", []any{held, overdue, queued}, inOrder, 0},
		{"held, no timer, the plan repairs it", []any{held, overdue, repaired}, timerLost, 0},
		{"held, no timer, just fetched", []any{held, overdue, recent, suspected}, landing, 30 * time.Second},
		{"held, refresh in flight", []any{held, overdue, due(v1.Cause_CAUSE_REFRESH), suspected}, landing, 30 * time.Second},
		{"held, newest body not landed", []any{held, other}, bodyLost, 0},
		{"held, newest body may land", []any{held, other, recent}, landing, 30 * time.Second},
		{"held, unsigned", []any{held, same, unsigned}, timerLost, 0},
		{"held, stream restored", []any{held, same, ahead}, timerLost, 0},
	} {
		var o observation
		var p pending
		var w wantindex.Want
		var a around
		for _, change := range tt.with {
			switch change := change.(type) {
			case func(*observation):
				change(&o)
			case func(*pending):
				change(&p)
			case func(*wantindex.Want):
				change(&w)
			case func(*around):
				change(&a)
			}
		}
		got, wait := classify(o, w, p).excuse(a.queued, a.repaired), time.Duration(0)
		if got != inOrder && got < bodyLost {
			wait = i.pause(got, p, 0, now)
		}
		if got != tt.want || wait != tt.wait {
			t.Errorf("%s: verdict %d after %s, want %d after %s", tt.name, got, wait, tt.want, tt.wait)
		}
	}
}
