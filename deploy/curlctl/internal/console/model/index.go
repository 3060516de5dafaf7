package model

import (
	"cmp"
	"math"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"k8s.io/utils/third_party/forked/golang/btree"

	"github.com/kv8s/curl-me-that/proto/condition"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/pipeline/operate"
)

// record is what is known of a key: its want, its timer, or both. There is one for
// each key, so it holds no message.
type record struct {
	key    pipeline.Key
	counts *namespaceCounts

	// wanted: what follows is of its want.
	wanted   bool
	uid, url string
	host     string
	refresh  time.Duration
	at       int64
	// sequence in the stream; 0: it has passed and was not read yet. Then it is at
	// most bound.
	sequence, bound uint64

	timer *timer
	// state and reason are what it was counted as.
	state  condition.State
	reason string
	// wantSeen and timerSeen are when each was last seen.
	wantSeen, timerSeen generation
}

// generation is the number of a load, and whether what passed is newer than what that
// reads.
type generation struct {
	load uint32
	live bool
}

// timer is a pending timer. Times are in milliseconds since 1970; 0: none.
type timer struct {
	at, setAt, firstFailed, fresh int64
	wantSequence                  uint64
	attempts                      uint32
	status                        int32
	cause                         v1.Cause
	reported                      v1.FailureClass
	waitsFor                      v1.WaitsFor
	// late: it should have fired when the streams were read.
	late bool
}

func newTimer(t operate.Timer, late bool) *timer {
	d := t.Due
	return &timer{
		at: t.At.UnixMilli(), setAt: t.SetAt.UnixMilli(), firstFailed: milli(d.GetFirstFailedAt()), fresh: milli(d.GetFreshUntil()),
		wantSequence: d.GetWantSequence(), attempts: d.GetAttempts(), status: d.GetStatusCode(),
		cause: d.GetCause(), reported: d.GetReported(), waitsFor: d.GetWaitsFor(), late: late,
	}
}

func milli(t *timestamppb.Timestamp) int64 {
	if t == nil {
		return 0
	}
	return t.AsTime().UnixMilli()
}

func stamp(milli int64) *timestamppb.Timestamp {
	if milli == 0 {
		return nil
	}
	return timestamppb.New(time.UnixMilli(milli))
}

// pending returns the timer of the record, which must have one.
func (r *record) pending() operate.Timer {
	t := r.timer
	return operate.Timer{Key: r.key, At: time.UnixMilli(t.at), SetAt: time.UnixMilli(t.setAt), Due: &v1.Due{
		WantSequence: t.wantSequence, Cause: t.cause, Attempts: t.attempts, Reported: t.reported, StatusCode: t.status, WaitsFor: t.waitsFor,
		FirstFailedAt: stamp(t.firstFailed), FreshUntil: stamp(t.fresh),
	}}
}

// condition of a record that is wanted.
func (r *record) condition(handled uint64, now time.Time) condition.Condition {
	want := operate.Want{Key: r.key, Sequence: cmp.Or(r.sequence, r.bound), At: time.UnixMilli(r.at)}
	if r.timer == nil {
		return condition.Of(want, nil, handled, now)
	}
	want.Want, want.Sequence = &v1.Want{Url: r.url, Refresh: durationpb.New(r.refresh)}, cmp.Or(r.sequence, r.timer.wantSequence)
	t := r.pending()
	return condition.Of(want, &t, handled, now)
}

// want sets what is wanted; nil: nothing.
func (r *record) want(w *v1.Want, sequence uint64, at time.Time) {
	if w.GetUrl() != r.url {
		r.url, r.host = w.GetUrl(), pipeline.HostOf(w.GetUrl())
	}
	r.wanted, r.uid, r.refresh, r.at = w != nil, w.GetUid(), w.GetRefresh().AsDuration(), at.UnixMilli()
	r.sequence, r.bound = sequence, math.MaxUint64
}

// isOf reports whether a host, given by name or address, is that of the record.
func (r *record) isOf(host string) bool {
	if r.host == pipeline.HiddenHost {
		return pipeline.HostIs(r.url, host)
	}
	return r.host == host
}

// namespaceCounts are what is counted of a namespace, or of all.
type namespaceCounts struct {
	wants, timers int
	hosts         map[string]*tally
	failed        hour
}

// tally counts the wanted keys of a host by condition.
type tally struct {
	name                            string
	wanted, failing, waiting, stale int
	// reasons count those that fail.
	reasons map[string]int
}

func newNamespaceCounts() *namespaceCounts { return &namespaceCounts{hosts: map[string]*tally{}} }

// count adds a record, or takes it out.
func (s *namespaceCounts) count(r *record, by int) {
	if r.timer != nil {
		s.timers += by
	}
	if !r.wanted {
		return
	}
	s.wants += by
	t := s.hosts[r.host]
	if t == nil {
		t = &tally{name: r.host, reasons: map[string]int{}}
		s.hosts[r.host] = t
	}
	t.count(r, by)
	if t.wanted == 0 {
		delete(s.hosts, r.host)
	}
}

func (t *tally) count(r *record, by int) {
	t.wanted += by
	switch r.state {
	case condition.Failing:
		t.failing += by
		if t.reasons[r.reason] += by; t.reasons[r.reason] == 0 {
			delete(t.reasons, r.reason)
		}
	case condition.Waiting:
		t.waiting += by
	case condition.IsStale:
		t.stale += by
	case condition.Well:
	}
}

// index has all records in the orders in which pages list them, and counts them as
// they change.
type index struct {
	byKey, byTime *btree.BTree[*record]
	// probe is what is looked up.
	probe       record
	all         *namespaceCounts
	byNamespace map[string]*namespaceCounts
	// backlog are the keys that no fetcher has taken, which is up to handled.
	backlog map[*record]bool
	handled uint64
}

const degree = 32

func newIndex() *index {
	return &index{
		byKey: btree.New(degree, func(a, b *record) bool { return compareKeys(a.key, b.key) < 0 }),
		byTime: btree.New(degree, func(a, b *record) bool {
			return cmp.Or(cmp.Compare(a.timer.at, b.timer.at), compareKeys(a.key, b.key)) < 0
		}),
		all: newNamespaceCounts(), byNamespace: map[string]*namespaceCounts{}, backlog: map[*record]bool{},
	}
}

func compareKeys(a, b pipeline.Key) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name), strings.Compare(a.Key, b.Key))
}

// counts returns those of a namespace; empty: those of all.
func (x *index) counts(namespace string) *namespaceCounts {
	if namespace == "" {
		return x.all
	}
	if s := x.byNamespace[namespace]; s != nil {
		return s
	}
	return newNamespaceCounts()
}

// namespace returns its counts, which are made where there are none.
func (x *index) namespace(name string) *namespaceCounts {
	s := x.byNamespace[name]
	if s == nil {
		s = newNamespaceCounts()
		x.byNamespace[strings.Clone(name)] = s
	}
	return s
}

// find returns the record of a key; nil: there is none.
func (x *index) find(key pipeline.Key) *record {
	x.probe.key = key
	r, _ := x.byKey.Get(&x.probe)
	return r
}

// change changes the record of a key, which is made where there is none.
func (x *index) change(key pipeline.Key, now time.Time, do func(*record)) {
	r := x.find(key)
	if r == nil {
		r = &record{key: key, counts: x.namespace(key.Namespace)}
		x.byKey.ReplaceOrInsert(r)
	}
	x.recount(r, now, do)
}

// recount takes a record out of what is counted while it is changed.
func (x *index) recount(r *record, now time.Time, do func(*record)) {
	x.count(r, -1)
	do(r)
	r.state, r.reason = "", ""
	if r.wanted {
		if t := x.all.hosts[r.host]; t != nil {
			r.host = t.name // one string for all of its records
		}
		c := r.condition(x.handled, now)
		r.state, r.reason = c.State, c.Reason
	}
	x.count(r, 1)
}

func (x *index) count(r *record, by int) {
	x.all.count(r, by)
	r.counts.count(r, by)
	if r.timer != nil {
		if by > 0 {
			x.byTime.ReplaceOrInsert(r)
		} else {
			x.byTime.Delete(r)
		}
	}
	if r.reason == condition.Backlog {
		if by > 0 {
			x.backlog[r] = true
		} else {
			delete(x.backlog, r)
		}
	}
}

// handle notes up to where the fetchers have taken requests, of which the last one
// has a sequence.
func (x *index) handle(handled, last uint64, now time.Time) {
	x.handled = handled
	for r := range x.backlog {
		if r.bound = min(r.bound, last); cmp.Or(r.sequence, r.bound) <= handled {
			x.recount(r, now, func(*record) {})
		}
	}
}

// expire removes the timers that have fired, of which a consumer gets no message.
func (x *index) expire(now time.Time) {
	var fired []*record
	x.byTime.Ascend(func(r *record) bool {
		if r.timer.at >= now.UnixMilli() {
			return false
		}
		if !r.timer.late {
			fired = append(fired, r)
		}
		return true
	})
	for _, r := range fired {
		x.recount(r, now, func(r *record) { r.timer = nil })
	}
}

// sweep removes what a load has not seen, and the records of nothing.
func (x *index) sweep(load uint32, now time.Time) {
	var gone []*record
	x.byKey.Ascend(func(r *record) bool {
		if r.wanted && r.wantSeen.load != load || r.timer != nil && r.timerSeen.load != load || !r.wanted && r.timer == nil {
			gone = append(gone, r)
		}
		return true
	})
	for _, r := range gone {
		x.recount(r, now, func(r *record) {
			r.wanted = r.wanted && r.wantSeen.load == load
			if r.timerSeen.load != load {
				r.timer = nil
			}
		})
		if !r.wanted && r.timer == nil {
			x.byKey.Delete(r)
		}
	}
	for name, s := range x.byNamespace {
		if s.wants+s.timers == 0 && s.failed.before(now) {
			delete(x.byNamespace, name)
		}
	}
}
