package keystate_test

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/kv8s/curl-me-that/proto/annotation"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/failure"
	"github.com/kv8s/curl-me-that/proto/keystate"
	"github.com/kv8s/curl-me-that/proto/status"
)

var now = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) *timestamppb.Timestamp { return timestamppb.New(now.Add(-d)) }

const page = "https://example.com/x"

func TestConditionOfAWant(t *testing.T) {
	t.Parallel()
	const interval, timeout = 10 * time.Minute, v1.FailureClass_FAILURE_CLASS_TIMEOUT
	const long = failure.StaleIntervals * interval
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
		"taken, fetched once": {want: keystate.Condition{State: keystate.OK, Reason: keystate.NotRead}},
		"refreshed": {
			due: &v1.Due{FreshUntil: ago(-time.Minute)}, at: next,
			want: keystate.Condition{State: keystate.OK, Reason: keystate.NotRead, Next: next, LastAttempt: set},
		},
		"failing": {
			due: &v1.Due{
				Reported: timeout, StatusCode: 503, Attempts: 3, FirstFailedAt: ago(time.Minute),
				WaitsFor: v1.WaitsFor_WAITS_FOR_PAUSE,
			},
			at: next,
			want: keystate.Condition{
				State: keystate.Failing, Reason: "Timeout", Status: 503, Since: now.Add(-time.Minute), Next: next, Attempts: 3,
				LastAttempt: set, WaitsFor: "pause of example.com",
			},
		},
		"failing, and its timer is late": {
			due: &v1.Due{Reported: timeout, FirstFailedAt: ago(time.Minute)}, at: late,
			want: keystate.Condition{
				State: keystate.Failing, Reason: "Timeout", Since: now.Add(-time.Minute), Next: late, LastAttempt: set,
			},
		},
		"late timer": {
			due: &v1.Due{FreshUntil: ago(0), Cause: v1.Cause_CAUSE_PARKED}, at: late,
			want: keystate.Condition{State: keystate.Stale, Reason: keystate.Overdue, Since: late, Next: late},
		},
		"timer not late yet": {
			due: &v1.Due{FreshUntil: ago(0)}, at: late.Add(time.Second),
			want: keystate.Condition{
				State: keystate.OK, Reason: keystate.NotRead, Next: late.Add(time.Second), LastAttempt: set,
			},
		},
		"parked, and stale": {
			due: &v1.Due{FreshUntil: ago(long), Cause: v1.Cause_CAUSE_PARKED}, at: next,
			want: keystate.Condition{State: keystate.Pending, Reason: keystate.Parked, Since: set, Next: next, Stale: true},
		},
		"stale": {
			due: &v1.Due{FreshUntil: ago(long)}, at: next,
			want: keystate.Condition{
				State: keystate.Stale, Reason: keystate.Outdated, Since: now.Add(-long), Next: next, LastAttempt: set,
				Stale: true,
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
				LastAttempt: set,
			},
		},
		"timer set without an attempt": {
			due: &v1.Due{}, at: next, want: keystate.Condition{State: keystate.OK, Reason: keystate.NotRead, Next: next},
		},
	} {
		streams := &keystate.Streams{
			Wanted: true, WantedAt: asked, Taken: !tt.untaken, Due: tt.due, At: tt.at, SetAt: set, Fired: tt.fired,
		}
		if got := keystate.Of(keystate.Spec{URL: page, Refresh: interval}, nil, streams, now); got != tt.want {
			t.Errorf("%s:\n got %+v\nwant %+v", name, got, tt.want)
		}
	}
}

// The object is read. TestConditionOfAWant has the streams in detail.
func TestConditionOfAKey(t *testing.T) {
	t.Parallel()
	const sentence, old, uid = "sentence", "https://example.com/old", "0b0e8a63-0000"
	const refused = "the API server refused to write the body from example.com, perhaps by an admission policy or " +
		"webhook; ask the operator, the log of the writer says which"
	const exists = "key k already exists and is not managed by curl-me-that; " +
		"remove it from the ConfigMap, or choose another key"
	const contested = "key k was changed by field manager kubectl; remove the key from its manifest"

	taken := func(due *v1.Due, newest string) *keystate.Streams {
		return &keystate.Streams{
			Wanted: true, Taken: true, Due: due, At: now.Add(time.Minute), SetAt: now, Newest: newest,
		}
	}
	fresh, timeout := &v1.Due{FreshUntil: ago(-time.Minute)}, v1.FailureClass_FAILURE_CLASS_TIMEOUT
	good, changed, audited := taken(fresh, ""), taken(fresh, "new"), taken(fresh, "new")
	audited.NotLanding = true
	bad := taken(&v1.Due{Reported: timeout, FirstFailedAt: ago(time.Minute)}, "")
	stale := taken(nil, "")
	stale.Stale = true
	none := &keystate.Streams{}

	written := status.Entry{URL: page, SHA256: "old", UIDMark: "0b0e8a63"}
	with := func(change func(*status.Entry)) status.Entry {
		e := written
		change(&e)
		return e
	}
	failed := func(reason string) status.Entry {
		return status.Entry{
			ErrorURL: page, Error: reason, Since: now, Attempts: 6, Explanation: &status.Explanation{Message: sentence},
		}
	}
	refusal := func(reason string) status.Entry {
		e := failed(reason)
		e.Attempts = 0
		return e
	}
	ours := annotation.Ownership{State: annotation.Ours}
	no := annotation.Ownership{State: annotation.None, Fingerprint: "none"}
	kubectl := annotation.Ownership{State: annotation.Foreign, Fingerprint: "kubectl/Update/2026-11-22T12:00:00Z"}
	for _, tt := range []struct {
		name            string
		streams         *keystate.Streams
		entry           status.Entry
		owner           annotation.Ownership
		state           keystate.State
		reason, message string
	}{
		{"fetched and written", good, written, ours, keystate.OK, "", ""},
		{"written, streams not read", nil, written, ours, keystate.OK, "", ""},
		{"fetched, never written", good, status.Entry{}, no, keystate.Pending, keystate.NotWritten, ""},
		{"nothing known", nil, status.Entry{}, no, keystate.Pending, keystate.NotWritten, ""},
		{
			"another URL is written", good, with(func(e *status.Entry) { e.URL = old }), ours,
			keystate.Pending, keystate.NotWritten, "",
		},
		{
			"written from the history, and no longer pinned", good, with(func(e *status.Entry) { e.URL = "" }), ours,
			keystate.Pending, keystate.NotWritten, "",
		},
		{
			"other content waits, and no pin any more", good, with(func(e *status.Entry) { e.Available = "new" }), ours,
			keystate.Pending, keystate.NotWritten, "",
		},
		{
			"written by other rules", good, with(func(e *status.Entry) { e.Rules = "other" }), ours,
			keystate.Pending, keystate.NotWritten, "",
		},
		{
			"the entry is of another object", good, with(func(e *status.Entry) { e.UIDMark = "ffffffff" }), ours,
			keystate.Pending, keystate.NotWritten, "",
		},
		{"a newer body is fetched", changed, written, ours, keystate.Pending, keystate.NotWritten, ""},
		{"a newer body is fetched again", audited, written, ours, keystate.Refused, "WriteFailed", refused},
		{"fetched again, never written", audited, status.Entry{}, no, keystate.Refused, "WriteFailed", refused},
		{"the timer was stale", stale, written, ours, keystate.Stale, keystate.Outdated, ""},
		{"another manager changed it", good, written, kubectl, keystate.Contested, "Drifted", contested},
		{"the same, streams not read", nil, written, kubectl, keystate.Contested, "Drifted", contested},
		{
			"another manager wrote the same value", good,
			with(func(e *status.Entry) { e.CheckedFingerprint = kubectl.Fingerprint }), kubectl, keystate.OK, "", "",
		},
		{"the key was removed", good, written, no, keystate.Pending, "Drifted", ""},
		{"removed, and in the queue", &keystate.Streams{Wanted: true}, written, no, keystate.Pending, "Backlog", ""},
		{"immutable", good, refusal("Immutable"), no, keystate.Refused, "Immutable", sentence},
		{"too large", good, refusal("BodyTooLarge"), no, keystate.Refused, "BodyTooLarge", sentence},
		{"too large to fetch", nil, failed("BodyTooLarge"), no, keystate.Failing, "BodyTooLarge", sentence},
		{"refused by a policy", good, refusal("WriteFailed"), no, keystate.Refused, "WriteFailed", sentence},
		{"key of another owner", none, refusal("KeyExists"), kubectl, keystate.Refused, "KeyExists", sentence},
		{"key of another owner, not reported yet", none, status.Entry{}, kubectl, keystate.Refused, "KeyExists", exists},
		{
			"key of another owner, reported for an earlier URL", none,
			status.Entry{ErrorURL: old, Error: "KeyExists"},
			kubectl,
			keystate.Refused, "KeyExists", exists,
		},
		{"rejected by the writer", good, refusal("ContentRejected"), ours, keystate.Failing, "ContentRejected", sentence},
		{
			"rejected by a fetcher, fetched again", good, failed("ContentRejected"), ours,
			keystate.Pending, keystate.NotWritten, "",
		},
		{
			"an edit has another URL", good,
			status.Entry{URL: old, Error: "Immutable"},
			no,
			keystate.Pending, keystate.NotWritten, "",
		},
		{"fetch fails", bad, failed("Timeout"), no, keystate.Failing, "Timeout", sentence},
		{"fetch fails, not reported yet", bad, written, ours, keystate.Failing, "Timeout", ""},
		{"recovered, not reported yet", good, failed("Timeout"), no, keystate.Pending, keystate.NotWritten, ""},
		{"failed for good", taken(nil, ""), failed("AddressDenied"), no, keystate.Failing, "AddressDenied", sentence},
		{"fails, and NATS is empty", none, failed("BadStatus"), no, keystate.Failing, "BadStatus", sentence},
		{"not published yet", none, written, ours, keystate.Pending, keystate.Unpublished, ""},
	} {
		spec := keystate.Spec{Key: "k", URL: page, Refresh: time.Hour}
		object := &keystate.View{UID: uid, Entry: tt.entry, Owner: tt.owner}
		got := keystate.Of(spec, object, tt.streams, now)
		if got.State != tt.state || got.Reason != tt.reason || got.Message != tt.message {
			t.Errorf("%s: %+v", tt.name, got)
		}
		if tt.message == sentence && got.Attempts != tt.entry.Attempts {
			t.Errorf("%s: %d attempts", tt.name, got.Attempts)
		}
		object.OtherAsker = "example.org/curl-me-that"
		if got := keystate.Of(spec, object, tt.streams, now); tt.streams != bad &&
			(got.State != keystate.Refused || !strings.Contains(got.Message, object.OtherAsker)) {
			t.Errorf("%s, for another installation: %+v", tt.name, got)
		}
		spec.Invalid = sentence
		if got := keystate.Of(spec, object, tt.streams, now); got.State != keystate.Failing || got.Message != sentence {
			t.Errorf("%s, invalid: %+v", tt.name, got)
		}
		spec.Ignored = "it is suspended"
		if got := keystate.Of(spec, object, tt.streams, now); got.State != keystate.Ignored || got.Message != spec.Ignored {
			t.Errorf("%s, suspended: %+v", tt.name, got)
		}
	}
}

// situation is what decides about the state of a key.
type situation struct {
	spec    keystate.Spec
	view    keystate.View
	streams keystate.Streams
}

// TestTransitions has a row for each arrow of the diagram in architecture.md, and no others. A row changes a key that
// is written and fetched, first to the state before the arrow and then to the state after it.
func TestTransitions(t *testing.T) {
	t.Parallel()
	type change = func(*situation)
	all := func(changes ...change) change {
		return func(s *situation) {
			for _, c := range changes {
				c(s)
			}
		}
	}
	fetched := func(s *situation) {
		s.streams = keystate.Streams{
			Wanted: true, Taken: true, Due: &v1.Due{FreshUntil: ago(-time.Minute)}, At: now.Add(time.Minute), SetAt: now,
		}
	}
	written := func(s *situation) {
		s.view.Entry = status.Entry{URL: page, SHA256: "old", UIDMark: "0b0e8a63"}
		s.view.Owner = annotation.Ownership{State: annotation.Ours}
	}
	fails := func(s *situation) { s.streams.Due = &v1.Due{Reported: v1.FailureClass_FAILURE_CLASS_TIMEOUT} }
	late := func(s *situation) { s.streams.At = now.Add(-time.Hour) }
	fires := func(s *situation) { s.streams.Fired = true }
	lost := func(s *situation) { s.streams = keystate.Streams{} }
	other := func(s *situation) { s.view.Entry.Available = "new" }
	again := func(s *situation) { s.view.Entry.Available = "" }
	pinned := func(s *situation) { s.spec.SHA256 = "old" }
	removed := func(s *situation) { s.view.Owner = annotation.Ownership{State: annotation.None, Fingerprint: "none"} }
	unwritten := all(removed, func(s *situation) { s.view.Entry = status.Entry{} })
	changed := func(s *situation) {
		s.view.Owner = annotation.Ownership{State: annotation.Foreign, Fingerprint: "kubectl/Update/2026-11-22T12:00:00Z"}
	}
	refuses := func(s *situation) { s.view.Entry.ErrorURL, s.view.Entry.Error = page, "WriteFailed" }
	suspended := func(s *situation) { s.spec.Ignored = "it is suspended" }
	resumed := func(s *situation) { s.spec.Ignored = "" }
	foreign, none, nothing := all(unwritten, lost, changed), all(unwritten, lost), all()
	rows := map[string][2]change{ // nil: outside of the diagram
		"[*] --> pending: user annotates a key":                                 {nil, none},
		"[*] --> refused: user annotates a key that someone else wrote":         {nil, foreign},
		"[*] --> ignored: user annotates a suspended object":                    {nil, all(none, suspended)},
		"pending --> ok: writer patches the object":                             {unwritten, written},
		"pending --> failing: the fetch fails":                                  {all(none, fetched), fails},
		"pending --> refused: API server refuses the patch":                     {unwritten, refuses},
		"pending --> held_back: fetcher gets other content than the pinned one": {all(unwritten, pinned), other},
		"pending --> stale: the timer is late":                                  {unwritten, late},
		"ok --> pending: user removes the key, a fetch is due":                  {nothing, removed},
		"ok --> contested: another manager changes the key":                     {nothing, changed},
		"ok --> stale: nobody fetches in time, the timer is late":               {nothing, late},
		"ok --> held_back: fetcher gets other content than the pinned one":      {pinned, other},
		"ok --> [*]: user removes the pair, writer removes the key":             {nothing, nil},
		"held_back --> ok: fetcher gets the pinned content":                     {all(pinned, other), again},
		"held_back --> pending: user removes the key":                           {all(pinned, other), removed},
		"held_back --> contested: another manager changes the key":              {all(pinned, other), changed},
		"held_back --> stale: the timer is late":                                {all(pinned, other), late},
		"stale --> ok: fetcher gets a good response":                            {late, fetched},
		"stale --> pending: the timer fires":                                    {late, fires},
		"stale --> contested: another manager changes the key":                  {late, changed},
		"failing --> pending: fetcher gets a good response":                     {all(unwritten, fails), fetched},
		"refused --> ok: obstacle is gone, writer patches the object":           {all(unwritten, refuses), written},
		"refused --> pending: the other owner removes the key":                  {foreign, removed},
		"contested --> ok: writer repairs the key":                              {changed, written},
		"contested --> pending: the other manager removes the key":              {changed, removed},
		"ignored --> pending: user resumes the object":                          {all(none, suspended), resumed},
		"ignored --> refused: the same, someone else wrote the key":             {all(foreign, suspended), resumed},
	}
	text, err := os.ReadFile("../../deploy/docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	_, diagram, _ := strings.Cut(string(text), "stateDiagram-v2\n")
	diagram, _, _ = strings.Cut(diagram, "```")
	drawn := regexp.MustCompile(`(?m)\S+ --> .*`).FindAllString(diagram, -1)
	for _, row := range slices.Sorted(maps.Keys(rows)) {
		if !slices.Contains(drawn, row) {
			t.Errorf("the diagram lacks %s", row)
		}
	}
	seen := map[string]bool{}
	for _, arrow := range drawn {
		edge, _, _ := strings.Cut(arrow, ": ")
		spec := keystate.Spec{Key: "k", URL: page, Refresh: time.Hour}
		s := situation{spec: spec, view: keystate.View{UID: "0b0e8a63-0000"}}
		written(&s)
		fetched(&s)
		for i, state := range strings.Split(edge, " --> ") {
			c := rows[arrow][i]
			if c == nil && state == "[*]" {
				continue
			} else if c == nil {
				t.Fatalf("%s: no row", arrow)
			}
			c(&s)
			seen[state] = true
			if got := keystate.Of(s.spec, &s.view, &s.streams, now); string(got.State) != state {
				t.Errorf("%s: %s instead of %s", arrow, got.State, state)
			}
		}
	}
	for _, state := range keystate.States() {
		if !seen[string(state)] {
			t.Errorf("the diagram lacks the state %s", state)
		}
	}
}
