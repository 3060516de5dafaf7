package audit_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kv8s/curl-me-that/proto/annotation"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/pipeline/natstest"
	"github.com/kv8s/curl-me-that/proto/pipeline/pipelinetest"
	"github.com/kv8s/curl-me-that/proto/process/metric"
	"github.com/kv8s/curl-me-that/proto/status"
	"github.com/kv8s/curl-me-that/watcher/internal/annotated"
	"github.com/kv8s/curl-me-that/watcher/internal/audit"
	"github.com/kv8s/curl-me-that/watcher/internal/informer"
	"github.com/kv8s/curl-me-that/watcher/internal/wantindex"
)

const (
	interval = 2 * time.Minute
	url      = "https://example.com/"
)

var stored, other = strings.Repeat("ab", 32), strings.Repeat("cd", 32)

// bench is an auditor with a real broker, its own clock, and objects.
type bench struct {
	testing.TB
	*audit.Auditor
	registry *prometheus.Registry
	client   *pipeline.Client
	index    *wantindex.Index
	clock    *clocktesting.FakeClock
	epoch    int64
	objects  map[types.NamespacedName]*annotated.Object
}

func newBench(tb testing.TB) *bench {
	tb.Helper()
	js := pipelinetest.Connect(tb, pipelinetest.Broker(tb, natstest.Options{}))
	b := &bench{
		TB: tb, client: pipeline.NewClient(js), index: wantindex.NewIndex(), clock: clocktesting.NewFakeClock(time.Now()),
		objects: map[types.NamespacedName]*annotated.Object{},
	}
	var err error
	if b.epoch, err = pipeline.Ensure(tb.Context(), js, pipeline.Topology{}); err != nil {
		tb.Fatal(err)
	}
	b.index.Reset(b.epoch, nil)
	b.registry = prometheus.NewRegistry()
	b.Auditor = audit.New(interval, audit.Deps{
		Client: b.client, Index: b.index, Object: b.object, Clock: b.clock, Log: zerolog.Nop(),
		Metrics: audit.NewMetrics(metric.New(b.registry, "watcher")),
	})
	return b
}

func (b *bench) object(name types.NamespacedName) *annotated.Object { return b.objects[name] }

func (b *bench) check(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// asks lets an object ask for a key, refreshed each hour, and publishes that.
func (b *bench) asks(namespace, name, key string) pipeline.Key {
	b.Helper()
	k := pipeline.Key{Namespace: namespace, Name: name, Key: key}
	at := types.NamespacedName{Namespace: namespace, Name: name}
	o := b.objects[at]
	if o == nil {
		o = &annotated.Object{
			Meta:    informer.Meta{NamespacedName: at, UID: "uid", Version: 5},
			Request: annotation.Request{Present: true, Refresh: time.Hour},
			Owners:  map[string]annotation.Ownership{},
		}
		b.objects[at] = o
	}
	o.Request.Pairs = append(o.Request.Pairs, annotation.Pair{Key: key, URL: url})
	o.Owners[key] = annotation.Ownership{State: annotation.None, Fingerprint: "none"}
	b.publish(k)
	return k
}

// publish publishes the want of a key once more.
func (b *bench) publish(k pipeline.Key, change ...func(*v1.Want)) {
	b.Helper()
	want := &v1.Want{
		Namespace: k.Namespace, Name: k.Name, Key: k.Key, Uid: "uid", ResourceVersion: "5", Url: url,
		Epoch: b.epoch, Refresh: durationpb.New(time.Hour),
	}
	for _, c := range change {
		c(want)
	}
	seq, err := b.client.PublishWant(b.Context(), want, b.want(k).Fence.Seq)
	b.check(err)
	b.index.Put(k, wantindex.Of(want, b.epoch, seq, b.clock.Now()))
}

func (b *bench) want(k pipeline.Key) wantindex.Want {
	return b.index.Object(types.NamespacedName{Namespace: k.Namespace, Name: k.Name})[k.Key]
}

// holds lets an object hold the body of a key.
func (b *bench) holds(k pipeline.Key) {
	b.entry(k, status.Entry{URL: url, SHA256: stored, Fence: b.want(k).Fence})
	o := b.objects[types.NamespacedName{Namespace: k.Namespace, Name: k.Name}]
	o.Owners[k.Key] = annotation.Ownership{State: annotation.Ours}
}

func (b *bench) entry(k pipeline.Key, e status.Entry) {
	o := b.objects[types.NamespacedName{Namespace: k.Namespace, Name: k.Name}]
	s := o.Status.Status()
	s.Keys[k.Key] = e
	o.Status = annotated.EntriesOf(s, nil)
}

// fetched acknowledges all that was published for the fetchers. A message waits
// for them only a moment after it was published, so that none may be there yet.
func (b *bench) fetched() {
	b.Helper()
	var last uint64
	b.index.Each(func(_ pipeline.Key, w wantindex.Want) { last = max(last, w.Fence.Seq) })
	consumer, err := b.client.JetStream().Consumer(b.Context(), pipeline.Requests, pipeline.FetcherConsumer)
	b.check(err)
	for info := consumer.CachedInfo(); info.AckFloor.Stream < last || info.NumAckPending > 0 || info.NumPending > 0; {
		batch, err := consumer.FetchNoWait(1000)
		b.check(err)
		for m := range batch.Messages() {
			b.check(m.Ack())
		}
		info, err = consumer.Info(b.Context())
		b.check(err)
	}
}

// waits returns when so many messages wait for the fetchers.
func (b *bench) waits(n uint64) {
	b.Helper()
	for waiting := uint64(0); waiting < n; {
		consumer, err := b.client.JetStream().Consumer(b.Context(), pipeline.Requests, pipeline.FetcherConsumer)
		b.check(err)
		waiting = consumer.CachedInfo().NumPending
	}
}

// timer sets the timer of a key, by the clock of the bench.
func (b *bench) timer(k pipeline.Key, in time.Duration, change func(*v1.Due)) {
	b.Helper()
	due := &v1.Due{
		Want:         &v1.Want{Namespace: k.Namespace, Name: k.Name, Key: k.Key, Uid: "uid", Url: url},
		WantSequence: b.want(k).Fence.Seq, Cause: v1.Cause_CAUSE_REFRESH,
	}
	if change != nil {
		change(due)
	}
	_, err := b.client.SetTimer(b.Context(), due, b.clock.Now().Add(in))
	b.check(err)
}

// due publishes a due, and returns when it waits for the fetchers.
func (b *bench) due(k pipeline.Key, cause v1.Cause) {
	b.Helper()
	_, err := b.client.PublishDue(b.Context(), &v1.Due{
		Want:         &v1.Want{Namespace: k.Namespace, Name: k.Name, Key: k.Key, Uid: "uid", Url: url},
		WantSequence: b.want(k).Fence.Seq, Cause: cause,
	}, k.String())
	b.check(err)
	b.waits(1)
}

func (b *bench) result(k pipeline.Key) {
	b.Helper()
	b.check(b.client.PublishResult(b.Context(), &v1.Result{
		Want:     &v1.Want{Namespace: k.Namespace, Name: k.Name, Key: k.Key, Uid: "uid", Url: url, Epoch: b.epoch},
		Sequence: b.want(k).Fence.Seq, Outcome: &v1.Result_Content{Content: &v1.Content{Body: []byte("x"), Sha256: other}},
	}))
}

// audit looks so often that each key has its turn, and returns the objects that were enqueued.
func (b *bench) audit() (names []types.NamespacedName) {
	b.Helper()
	for range 8 {
		b.check(b.Look(b.Context(), func(name types.NamespacedName) { names = append(names, name) }))
	}
	return names
}

// found audits once and returns what was found.
func (b *bench) found() map[pipeline.Key]wantindex.Finding {
	b.Helper()
	names := b.audit()
	findings := map[pipeline.Key]wantindex.Finding{}
	for _, name := range names {
		for key, w := range b.index.Object(name) {
			if w.Finding != wantindex.NothingLost {
				findings[pipeline.Key{Namespace: name.Namespace, Name: name.Name, Key: key}] = w.Finding
			}
		}
	}
	return findings
}

// metric returns the value of a metric of the auditor, of one cause if it has any.
func (b *bench) metric(name, cause string) float64 {
	b.Helper()
	families, err := b.registry.Gather()
	b.check(err)
	for _, family := range families {
		for _, m := range family.GetMetric() {
			of := len(m.GetLabel()) == 0 || m.GetLabel()[0].GetValue() == cause
			if family.GetName() == "curlmethat_watcher_"+name && of {
				return m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	b.Fatalf("there is no metric %s", name)
	return 0
}

func cached(sum string) func(*v1.Due) {
	return func(d *v1.Due) { d.Cached = &v1.Cached{Sha256: sum} }
}

func TestAudit(t *testing.T) {
	t.Parallel()
	cause := func(c v1.Cause) func(*v1.Due) { return func(d *v1.Due) { d.Cause = c } }
	failing := func(d *v1.Due) { d.Cause, d.Reported = v1.Cause_CAUSE_RECHECK, v1.FailureClass_FAILURE_CLASS_TIMEOUT }
	denied := func(detail v1.FailureDetail) func(*v1.Due) {
		return func(d *v1.Due) { d.Reported, d.Detail = v1.FailureClass_FAILURE_CLASS_ADDRESS_DENIED, detail }
	}
	unsigned := denied(v1.FailureDetail_FAILURE_DETAIL_DENIED_CREDENTIALS)
	for name, c := range map[string]struct {
		prepare func(*bench, pipeline.Key)
		want    wantindex.Finding
	}{
		"asks again for a key without a body whose refresh is due in an hour": {func(b *bench, k pipeline.Key) {
			b.fetched()
			b.timer(k, time.Hour, cached(other))
		}, wantindex.BodyLost},
		"waits for a result that the writer has not handled": {func(b *bench, k pipeline.Key) {
			b.fetched()
			b.timer(k, time.Hour, cached(other))
			b.result(k)
		}, wantindex.NothingLost},
		"waits for a want that no fetcher has received": {
			func(b *bench, _ pipeline.Key) { b.waits(1) },
			wantindex.NothingLost,
		},
		"waits for a retry": {func(b *bench, k pipeline.Key) {
			b.fetched()
			b.timer(k, time.Hour, cause(v1.Cause_CAUSE_RETRY))
		}, wantindex.NothingLost},
		"asks again for a key whose retry is overdue": {func(b *bench, k pipeline.Key) {
			b.fetched()
			b.timer(k, time.Minute, cause(v1.Cause_CAUSE_RETRY))
		}, wantindex.BodyLost},
		"waits for the recheck of a failure that the status records": {func(b *bench, k pipeline.Key) {
			b.fetched()
			b.timer(k, time.Hour, failing)
			b.entry(k, status.Entry{Error: "Timeout"})
		}, wantindex.NothingLost},
		"asks again for a key whose failure was lost before the status recorded it": {func(b *bench, k pipeline.Key) {
			b.fetched()
			b.timer(k, time.Hour, failing)
		}, wantindex.BodyLost},
		"asks again for a key whose want no trusted key has signed": {func(b *bench, k pipeline.Key) {
			b.fetched()
			b.timer(k, time.Hour, unsigned)
			b.entry(k, status.Entry{Error: "AddressDenied"})
		}, wantindex.BodyLost},
		"asks again for such a key while its due waits": {func(b *bench, k pipeline.Key) {
			b.fetched()
			b.due(k, v1.Cause_CAUSE_REFRESH)
			b.timer(k, time.Hour, unsigned)
			b.entry(k, status.Entry{Error: "AddressDenied"})
		}, wantindex.BodyLost},
		"waits for the recheck of another denial": {func(b *bench, k pipeline.Key) {
			b.fetched()
			b.timer(k, time.Hour, denied(v1.FailureDetail_FAILURE_DETAIL_DENIED_ADDRESS))
			b.entry(k, status.Entry{Error: "AddressDenied"})
		}, wantindex.NothingLost},
		"has the want of a held key signed again if no trusted key has signed it": {func(b *bench, k pipeline.Key) {
			b.fetched()
			b.holds(k)
			b.timer(k, time.Hour, unsigned)
		}, wantindex.TimerLost},
		"has it signed again although fetchers always work on one of its messages": {func(b *bench, k pipeline.Key) {
			b.fetched()
			b.holds(k)
			b.due(k, v1.Cause_CAUSE_REFRESH)
			b.timer(k, time.Hour, unsigned)
		}, wantindex.TimerLost},
		"asks again for a body that the writer has refused": {func(b *bench, k pipeline.Key) {
			b.fetched()
			b.timer(k, time.Hour, cached(other))
			b.entry(k, status.Entry{Error: "BodyTooLarge"})
		}, wantindex.BodyLost},
		"ignores an immutable object": {func(b *bench, k pipeline.Key) {
			b.fetched()
			b.entry(k, status.Entry{Error: "Immutable"})
		}, wantindex.NothingLost},
		"ignores a held key that will be refreshed": {func(b *bench, k pipeline.Key) {
			b.fetched()
			b.holds(k)
			b.timer(k, time.Hour, cached(stored))
		}, wantindex.NothingLost},
		"restarts the refresh of a held key without a timer": {func(b *bench, k pipeline.Key) {
			b.fetched()
			b.holds(k)
		}, wantindex.TimerLost},
		"restarts the refresh of a held key whose timer is overdue": {func(b *bench, k pipeline.Key) {
			b.fetched()
			b.holds(k)
			b.timer(k, time.Minute, cached(stored))
		}, wantindex.TimerLost},
		"asks again for a held key whose newest body never landed": {func(b *bench, k pipeline.Key) {
			b.fetched()
			b.holds(k)
			b.timer(k, time.Hour, cached(other))
		}, wantindex.BodyLost},
		"asks again if the API server was restored to before the want": {func(b *bench, k pipeline.Key) {
			b.publish(k, func(w *v1.Want) { w.ResourceVersion = "6" })
			b.fetched()
			b.holds(k)
			b.timer(k, time.Hour, cached(stored))
		}, wantindex.BodyLost},
		"publishes in a later epoch if the stream was restored": {func(b *bench, k pipeline.Key) {
			b.fetched()
			b.holds(k)
			b.entry(k, status.Entry{URL: url, SHA256: stored, Fence: status.Fence{Epoch: b.epoch, Seq: 1000}})
			b.timer(k, time.Hour, cached(stored))
		}, wantindex.TimerLost},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			k := b.asks("ns", "cm", "k")
			c.prepare(b, k)
			b.clock.Step(interval + time.Second)
			if got := b.found()[k]; got != c.want {
				t.Errorf("found %s, want %s", got, c.want)
			}
		})
	}
}

func TestStampsFromBeforeTheBrokersClockWasSetBackCountAsOld(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	empty, held, retried := b.asks("ns", "cm", "empty"), b.asks("ns", "cm", "held"), b.asks("ns", "cm", "retried")
	b.fetched()
	b.timer(retried, time.Minute, func(d *v1.Due) { d.Cause = v1.Cause_CAUSE_RETRY })
	b.holds(held)
	b.timer(held, time.Minute, cached(stored))
	b.clock.Step(-time.Hour)
	want := map[pipeline.Key]wantindex.Finding{
		empty: wantindex.BodyLost, retried: wantindex.BodyLost, held: wantindex.TimerLost,
	}
	if got := b.found(); !maps.Equal(got, want) {
		t.Errorf("found %v, want %v", got, want)
	}
}

func TestAKeyIsRequestedAtGrowingIntervalsWhileItsObjectIsTheSame(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	k := b.asks("ns", "cm", "k")
	b.entry(k, status.Entry{Error: "BodyTooLarge"})
	b.fetched()
	want := wantindex.BodyLost
	const minute = time.Minute
	for _, pause := range []time.Duration{minute / 2, 2 * minute, 4 * minute, 8 * minute, 10 * minute, 10 * minute} {
		b.clock.Step(pause - time.Second)
		if got := b.found(); len(got) != 0 {
			t.Fatalf("asked again before %s", pause)
		}
		b.clock.Step(time.Second)
		if got := b.found()[k]; got != want {
			t.Fatalf("found %s after %s, want %s", got, pause, want)
		}
		want = wantindex.Refused
		b.publish(k)
		b.fetched()
	}
	b.objects[types.NamespacedName{Namespace: "ns", Name: "cm"}].EditedAt = b.clock.Now()
	b.clock.Step(30 * time.Second)
	if got := b.found()[k]; got != wantindex.BodyLost {
		t.Error("an edit does not let it be asked for soon")
	}
}

func TestAKeyThatIsRefreshedInEachIntervalIsRequested(t *testing.T) {
	t.Parallel()
	refresh := func(d *v1.Due) { d.Cached = &v1.Cached{Sha256: other} }
	for name, hold := range map[string]func(*bench, pipeline.Key){
		"although it holds nothing":         func(*bench, pipeline.Key) {},
		"although it holds an earlier body": (*bench).holds,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.clock.SetTime(time.Now().Add(-interval))
			k := b.asks("ns", "cm", "k")
			b.fetched()
			hold(b, k)
			for n, want := range []wantindex.Finding{wantindex.NothingLost, wantindex.BodyLost} {
				// It was fetched this moment, by the clock of the broker.
				b.clock.SetTime(time.Now().Add(time.Duration(n-1) * interval / 4))
				b.timer(k, interval, refresh)
				if got := b.found()[k]; got != want {
					t.Errorf("audit %d found %s, want %s", n, got, want)
				}
			}
		})
	}
}

func TestAKeyThatSomebodyElseChangedIsNotLost(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	k := b.asks("ns", "cm", "k")
	b.fetched()
	b.holds(k)
	o := b.objects[types.NamespacedName{Namespace: "ns", Name: "cm"}]
	o.Owners["k"] = annotation.Ownership{State: annotation.Foreign, Fingerprint: "theirs"}
	b.clock.Step(interval + time.Second)
	if looks := slices.Compact(b.audit()); len(looks) != 1 {
		t.Errorf("%v are to be repaired", looks)
	}
	if n := b.metric("lost_keys_total", "body_lost"); n != 0 || b.want(k).Finding != wantindex.NothingLost {
		t.Errorf("%v keys are lost", n)
	}
}

func TestAKeyThatWasJustFetchedIsNotLost(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.clock.SetTime(time.Now().Add(-interval))
	k := b.asks("ns", "cm", "k")
	b.fetched()
	// It was put off until now, by the clock of the broker, and is on its way to the
	// watch.
	b.clock.SetTime(time.Now())
	b.due(k, v1.Cause_CAUSE_PARKED)
	b.fetched()
	if got := b.found(); len(got) != 0 {
		t.Errorf("found %v", got)
	}
	b.clock.Step(interval / 2)
	if got := b.found()[k]; got != wantindex.BodyLost {
		t.Errorf("found %s, want %s", got, wantindex.BodyLost)
	}
}

// A key is stale when it has had no good fetch for three intervals, whether it
// fails or is not looked at, and it is counted once.
func TestStaleKeysAreCounted(t *testing.T) {
	b := newBench(t)
	fresh, missed := b.asks("ns", "fresh", "k"), b.asks("ns", "missed", "k")
	failing, young := b.asks("ns", "failing", "k"), b.asks("ns", "young", "k")
	b.fetched()
	for _, k := range []pipeline.Key{fresh, missed, failing, young} {
		b.holds(k)
	}
	late := func(d time.Duration) func(*v1.Due) {
		return func(due *v1.Due) { due.FreshUntil = timestamppb.New(b.clock.Now().Add(-d)) }
	}
	b.timer(fresh, time.Hour, late(2*time.Hour-10*time.Minute))
	b.timer(missed, time.Hour, late(2*time.Hour+time.Minute))
	b.timer(failing, time.Hour, late(2*time.Hour+time.Minute))
	b.timer(young, time.Hour, late(time.Hour))
	for k, since := range map[pipeline.Key]time.Duration{failing: 3*time.Hour + time.Minute, young: 2 * time.Hour} {
		entry := b.objects[types.NamespacedName{Namespace: k.Namespace, Name: k.Name}].Status.Of(k.Key)
		entry.Error, entry.Since = "BadStatus", b.clock.Now().Add(-since)
		b.entry(k, entry)
	}
	b.clock.Step(interval)
	b.found()
	if got := b.metric("stale_keys", ""); got != 2 {
		t.Errorf("%v keys are stale, want 2", got)
	}
}
