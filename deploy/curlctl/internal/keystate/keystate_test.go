package keystate_test

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/keystate"
	"github.com/kv8s/curl-me-that/proto/condition"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
)

var now = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) *timestamppb.Timestamp { return timestamppb.New(now.Add(-d)) }

const page = "https://example.com/x"

func TestConditionOfAWant(t *testing.T) {
	t.Parallel()
	const interval, timeout = 10 * time.Minute, v1.FailureClass_FAILURE_CLASS_TIMEOUT
	const long = condition.StaleIntervals * interval
	asked, set, next := now.Add(-time.Hour), now.Add(-time.Minute), now.Add(time.Minute)
	late := now.Add(-time.Minute - time.Second)
	for name, tt := range map[string]struct {
		due     *v1.Due
		at      time.Time
		untaken bool
		fired   bool
		want    keystate.Condition
	}{
		"not taken yet": {
			untaken: true,
			want:    keystate.Condition{State: keystate.Pending, Reason: keystate.Backlog, Since: asked},
		},
		"taken, fetched once": {want: keystate.Condition{State: keystate.Fetched}},
		"refreshed": {
			due: &v1.Due{FreshUntil: ago(-time.Minute)}, at: next,
			want: keystate.Condition{State: keystate.Fetched, Next: next, Checked: set},
		},
		"failing": {
			due: &v1.Due{
				Reported: timeout, StatusCode: 503, Attempts: 3, FirstFailedAt: ago(time.Minute),
				WaitsFor: v1.WaitsFor_WAITS_FOR_PAUSE,
			},
			at: next,
			want: keystate.Condition{
				State: keystate.Failing, Reason: "Timeout", Status: 503, Since: now.Add(-time.Minute), Next: next, Attempts: 3,
				Checked: set, WaitsFor: "pause of example.com",
			},
		},
		"failing, and its timer is late": {
			due: &v1.Due{Reported: timeout, FirstFailedAt: ago(time.Minute)}, at: late,
			want: keystate.Condition{
				State: keystate.Failing, Reason: "Timeout", Since: now.Add(-time.Minute), Next: late, Checked: set,
			},
		},
		"late timer": {
			due: &v1.Due{FreshUntil: ago(0), Cause: v1.Cause_CAUSE_PARKED}, at: late,
			want: keystate.Condition{State: keystate.Stale, Reason: keystate.Overdue, Since: late, Next: late},
		},
		"timer not late yet": {
			due: &v1.Due{FreshUntil: ago(0)}, at: late.Add(time.Second),
			want: keystate.Condition{State: keystate.Fetched, Next: late.Add(time.Second), Checked: set},
		},
		"parked, and stale": {
			due: &v1.Due{FreshUntil: ago(long), Cause: v1.Cause_CAUSE_PARKED}, at: next,
			want: keystate.Condition{State: keystate.Pending, Reason: keystate.Parked, Since: set, Next: next, Stale: true},
		},
		"stale": {
			due: &v1.Due{FreshUntil: ago(long)}, at: next,
			want: keystate.Condition{
				State: keystate.Stale, Reason: keystate.Outdated, Since: now.Add(-long), Next: next, Checked: set, Stale: true,
			},
		},
		"fired, and not taken": {
			due: &v1.Due{FreshUntil: ago(0)}, at: late, fired: true,
			want: keystate.Condition{State: keystate.Pending, Reason: keystate.Backlog, Since: late, Next: late},
		},
		"failing, and replayed": {
			due: &v1.Due{Reported: timeout, FirstFailedAt: ago(time.Minute)}, at: late, fired: true,
			want: keystate.Condition{State: keystate.Failing, Reason: "Timeout", Since: now.Add(-time.Minute), Next: late},
		},
		"failed, not reported yet": {
			due: &v1.Due{Attempts: 1, FirstFailedAt: ago(time.Minute), Cause: v1.Cause_CAUSE_RETRY}, at: next,
			want: keystate.Condition{
				State: keystate.Pending, Reason: keystate.Retry, Since: now.Add(-time.Minute), Next: next, Attempts: 1,
				Checked: set,
			},
		},
		"timer set without an attempt": {
			due: &v1.Due{}, at: next, want: keystate.Condition{State: keystate.Fetched, Next: next},
		},
	} {
		fetch := &keystate.Fetch{
			URL: page, Refresh: interval, Wanted: asked, Taken: !tt.untaken, Due: tt.due, At: tt.at, SetAt: set,
			Fired: tt.fired,
		}
		if got := keystate.Of(fetch, nil, now); got != tt.want {
			t.Errorf("%s:\n got %+v\nwant %+v", name, got, tt.want)
		}
	}
}

// A key is ok only if the streams show the fetch and the object shows the write.
func TestConditionOfAKey(t *testing.T) {
	t.Parallel()
	fetch := func(due *v1.Due) *keystate.Fetch {
		return &keystate.Fetch{
			URL: page, Refresh: time.Hour, Taken: true, Due: due, At: now.Add(time.Minute), SetAt: now,
		}
	}
	good := fetch(&v1.Due{FreshUntil: ago(-time.Minute)})
	bad := fetch(&v1.Due{Reported: v1.FailureClass_FAILURE_CLASS_TIMEOUT, FirstFailedAt: ago(time.Minute)})
	const sentence, notWritten = "sentence", keystate.NotWritten
	const refused = "the API server refused to write the body from example.com, perhaps by an admission policy or " +
		"webhook; ask the operator, the log of the writer says which"
	written, old := &keystate.Write{URL: page, Written: true, SHA256: "old"}, "https://example.com/old"
	changed := fetch(&v1.Due{FreshUntil: ago(-time.Minute), Cached: &v1.Cached{Sha256: "new"}})
	audited := fetch(changed.Due)
	audited.Audited = true
	contested := &keystate.Write{URL: page, Written: true, Contested: sentence}
	failed := func(reason string) *keystate.Write {
		return &keystate.Write{URL: page, Reason: reason, Message: sentence, Since: now, Attempts: 6}
	}
	for _, tt := range []struct {
		name            string
		fetch           *keystate.Fetch
		write           *keystate.Write
		state           keystate.State
		reason, message string
	}{
		{"fetched and written", good, written, keystate.OK, "", ""},
		{"fetched, never written", good, &keystate.Write{}, keystate.Pending, notWritten, ""},
		{"another URL is written", good, &keystate.Write{URL: old, Written: true}, keystate.Pending, notWritten, ""},
		{"a newer body is fetched", changed, written, keystate.Pending, notWritten, ""},
		{"a newer body is fetched again", audited, written, keystate.Refused, "WriteFailed", refused},
		{"fetched again, never written", audited, &keystate.Write{}, keystate.Refused, "WriteFailed", refused},
		{"another manager changed it", good, contested, keystate.Contested, "Contested", sentence},
		{"immutable", good, failed("Immutable"), keystate.Refused, "Immutable", sentence},
		{"too large", good, failed("BodyTooLarge"), keystate.Refused, "BodyTooLarge", sentence},
		{"refused by a policy", good, failed("WriteFailed"), keystate.Refused, "WriteFailed", sentence},
		{"key of another owner", nil, failed("KeyExists"), keystate.Refused, "KeyExists", sentence},
		{"an edit has another URL", good, &keystate.Write{URL: old, Reason: "Immutable"}, keystate.Pending, notWritten, ""},
		{"fetch fails", bad, failed("Timeout"), keystate.Failing, "Timeout", sentence},
		{"fetch fails, not reported yet", bad, written, keystate.Failing, "Timeout", ""},
		{"recovered, not reported yet", good, failed("Timeout"), keystate.Pending, notWritten, ""},
		{"failed without a next try", fetch(nil), failed("AddressDenied"), keystate.Failing, "AddressDenied", sentence},
		{"fails, and NATS is empty", nil, failed("BadStatus"), keystate.Failing, "BadStatus", sentence},
		{"not published yet", nil, &keystate.Write{}, keystate.Pending, keystate.Unpublished, ""},
		{"ignored", nil, &keystate.Write{Ignored: "it is suspended"}, keystate.Ignored, "", "it is suspended"},
	} {
		got := keystate.Of(tt.fetch, tt.write, now)
		if got.State != tt.state || got.Reason != tt.reason || got.Message != tt.message {
			t.Errorf("%s: %+v", tt.name, got)
		}
		if tt.message == sentence && tt.write.Reason != "" && got.Attempts != 6 {
			t.Errorf("%s: %d attempts", tt.name, got.Attempts)
		}
	}
}
