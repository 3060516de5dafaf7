package audit_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kv8s/curl-me-that/proto/annotation"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/pipeline/pipelinetest"
	"github.com/kv8s/curl-me-that/proto/process/metric"
	"github.com/kv8s/curl-me-that/proto/process/metric/metrictest"
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
	*WithT
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
	_, js, epoch := pipelinetest.Ensured(tb, pipeline.Topology{})
	b := &bench{
		TB: tb, WithT: NewWithT(tb), client: pipeline.NewClient(js), index: wantindex.NewIndex(), epoch: epoch,
		clock: clocktesting.NewFakeClock(time.Now()), objects: map[types.NamespacedName]*annotated.Object{},
		registry: prometheus.NewRegistry(),
	}
	b.index.Reset(b.epoch, nil)
	b.Auditor = audit.New(interval, audit.Deps{
		Client: b.client, Index: b.index, Object: b.object, Clock: b.clock, Log: zerolog.Nop(),
		Metrics: audit.NewMetrics(metric.New(b.registry, "watcher")),
	})
	return b
}

func (b *bench) object(name types.NamespacedName) *annotated.Object { return b.objects[name] }

// of returns the object of a key.
func (b *bench) of(k pipeline.Key) *annotated.Object { return b.objects[wantindex.ObjectOf(k)] }

// asks lets an object ask for a key, refreshed each hour, and publishes that.
func (b *bench) asks(namespace, name, key string) pipeline.Key {
	b.Helper()
	k := pipeline.Key{Namespace: namespace, Name: name, Key: key}
	o := b.of(k)
	if o == nil {
		o = &annotated.Object{
			Meta:    informer.Meta{NamespacedName: wantindex.ObjectOf(k), UID: "uid", Version: 5},
			Request: annotation.Request{Present: true, Refresh: time.Hour},
			Owners:  map[string]annotation.Ownership{},
		}
		b.objects[o.NamespacedName] = o
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
	b.Expect(err).NotTo(HaveOccurred())
	b.index.Put(k, wantindex.Of(want, b.epoch, seq, b.clock.Now()))
}

func (b *bench) want(k pipeline.Key) wantindex.Want {
	return b.index.Object(wantindex.ObjectOf(k))[k.Key]
}

// holds lets an object hold the body of a key.
func (b *bench) holds(k pipeline.Key) {
	b.entry(k, status.Entry{URL: url, SHA256: stored, Fence: b.want(k).Fence})
	b.of(k).Owners[k.Key] = annotation.Ownership{State: annotation.Ours}
}

func (b *bench) entry(k pipeline.Key, e status.Entry) {
	o := b.of(k)
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
	b.Expect(err).NotTo(HaveOccurred())
	for info := consumer.CachedInfo(); info.AckFloor.Stream < last || info.NumAckPending > 0 || info.NumPending > 0; {
		batch, err := consumer.FetchNoWait(1000)
		b.Expect(err).NotTo(HaveOccurred())
		for m := range batch.Messages() {
			b.Expect(m.Ack()).To(Succeed())
		}
		info, err = consumer.Info(b.Context())
		b.Expect(err).NotTo(HaveOccurred())
	}
}

// waits returns when so many messages wait for the fetchers.
func (b *bench) waits(n uint64) {
	b.Helper()
	for waiting := uint64(0); waiting < n; {
		consumer, err := b.client.JetStream().Consumer(b.Context(), pipeline.Requests, pipeline.FetcherConsumer)
		b.Expect(err).NotTo(HaveOccurred())
		waiting = consumer.CachedInfo().NumPending
	}
}

// timer sets the timer of a key, by the clock of the bench.
func (b *bench) timer(k pipeline.Key, in time.Duration, change func(*v1.Due)) {
	b.Helper()
	due := b.dueOf(k, v1.Cause_CAUSE_REFRESH)
	change(due)
	b.Expect(b.client.SetTimer(b.Context(), due, b.clock.Now().Add(in))).Error().NotTo(HaveOccurred())
}

func (b *bench) dueOf(k pipeline.Key, cause v1.Cause) *v1.Due {
	return &v1.Due{
		Want:         &v1.Want{Namespace: k.Namespace, Name: k.Name, Key: k.Key, Uid: "uid", Url: url},
		WantSequence: b.want(k).Fence.Seq, Cause: cause,
	}
}

// due publishes a due, and returns when it waits for the fetchers.
func (b *bench) due(k pipeline.Key, cause v1.Cause) {
	b.Helper()
	b.Expect(b.client.PublishDue(b.Context(), b.dueOf(k, cause), k.String())).Error().NotTo(HaveOccurred())
	b.waits(1)
}

func (b *bench) result(k pipeline.Key) {
	b.Helper()
	b.Expect(b.client.PublishResult(b.Context(), &v1.Result{
		Want:     &v1.Want{Namespace: k.Namespace, Name: k.Name, Key: k.Key, Uid: "uid", Url: url, Epoch: b.epoch},
		Sequence: b.want(k).Fence.Seq, Outcome: &v1.Result_Content{Content: &v1.Content{Body: []byte("x"), Sha256: other}},
	})).To(Succeed())
}

// look looks once, and returns the objects that were enqueued.
func (b *bench) look() (names []types.NamespacedName) {
	b.Helper()
	b.Expect(b.Look(b.Context(), func(name types.NamespacedName) { names = append(names, name) })).To(Succeed())
	return names
}

// audit looks so often that each key has its turn, and returns the objects that were enqueued.
func (b *bench) audit() (names []types.NamespacedName) {
	b.Helper()
	for range 8 {
		names = append(names, b.look()...)
	}
	return names
}

// found audits once and returns what was found.
func (b *bench) found() map[pipeline.Key]wantindex.Finding {
	b.Helper()
	findings := map[pipeline.Key]wantindex.Finding{}
	for _, name := range b.audit() {
		for key, w := range b.index.Object(name) {
			if w.Finding != wantindex.NothingLost {
				findings[wantindex.KeyOf(name, key)] = w.Finding
			}
		}
	}
	return findings
}

// lost returns how many keys were found lost for a cause.
func (b *bench) lost(cause string) (float64, error) {
	return metrictest.Value(b.registry, `curlmethat_watcher_lost_keys_total{cause="`+cause+`"}`)
}

func cached(sum string) func(*v1.Due) {
	return func(d *v1.Due) { d.Cached = &v1.Cached{Sha256: sum} }
}

// step is a part of the past of a key.
type step = func(*bench, pipeline.Key)

func fetched(b *bench, _ pipeline.Key) { b.fetched() }

func entry(e status.Entry) step { return func(b *bench, k pipeline.Key) { b.entry(k, e) } }

func failsBy(reason string) step { return entry(status.Entry{Error: reason}) }

// due is a refresh that waits for the fetchers.
func due(b *bench, k pipeline.Key) { b.due(k, v1.Cause_CAUSE_REFRESH) }

func timer(in time.Duration, change func(*v1.Due)) step {
	return func(b *bench, k pipeline.Key) { b.timer(k, in, change) }
}

func TestAudit(t *testing.T) {
	t.Parallel()
	cause := func(c v1.Cause) func(*v1.Due) { return func(d *v1.Due) { d.Cause = c } }
	failing := func(d *v1.Due) { d.Cause, d.Reported = v1.Cause_CAUSE_RECHECK, v1.FailureClass_FAILURE_CLASS_TIMEOUT }
	denied := func(detail v1.FailureDetail) func(*v1.Due) {
		return func(d *v1.Due) { d.Reported, d.Detail = v1.FailureClass_FAILURE_CLASS_ADDRESS_DENIED, detail }
	}
	holds := (*bench).holds
	unsigned := timer(time.Hour, denied(v1.FailureDetail_FAILURE_DETAIL_DENIED_CREDENTIALS))
	otherBody, sameBody := timer(time.Hour, cached(other)), timer(time.Hour, cached(stored))
	waits := func(b *bench, _ pipeline.Key) { b.waits(1) }
	laterVersion := func(b *bench, k pipeline.Key) { b.publish(k, func(w *v1.Want) { w.ResourceVersion = "6" }) }
	ahead := func(b *bench, k pipeline.Key) {
		b.entry(k, status.Entry{URL: url, SHA256: stored, Fence: status.Fence{Epoch: b.epoch, Seq: 1000}})
	}
	for name, c := range map[string]struct {
		want wantindex.Finding
		past []step
	}{
		"asks again for a key without a body whose refresh is due in an hour": {
			wantindex.BodyLost, []step{fetched, otherBody},
		},
		"waits for a result that the writer has not handled": {
			wantindex.NothingLost, []step{fetched, otherBody, (*bench).result},
		},
		"waits for a want that no fetcher has received": {wantindex.NothingLost, []step{waits}},
		"waits for a retry": {
			wantindex.NothingLost, []step{fetched, timer(time.Hour, cause(v1.Cause_CAUSE_RETRY))},
		},
		"asks again for a key whose retry is overdue": {
			wantindex.BodyLost, []step{fetched, timer(time.Minute, cause(v1.Cause_CAUSE_RETRY))},
		},
		"waits for the recheck of a failure that the status records": {
			wantindex.NothingLost, []step{fetched, timer(time.Hour, failing), failsBy("Timeout")},
		},
		"asks again for a key whose failure was lost before the status recorded it": {
			wantindex.BodyLost, []step{fetched, timer(time.Hour, failing)},
		},
		"asks again for a key whose want no trusted key has signed": {
			wantindex.BodyLost, []step{fetched, unsigned, failsBy("AddressDenied")},
		},
		"asks again for such a key while its due waits": {
			wantindex.BodyLost, []step{fetched, due, unsigned, failsBy("AddressDenied")},
		},
		"waits for the recheck of another denial": {wantindex.NothingLost, []step{
			fetched, timer(time.Hour, denied(v1.FailureDetail_FAILURE_DETAIL_DENIED_ADDRESS)), failsBy("AddressDenied"),
		}},
		"has the want of a held key signed again if no trusted key has signed it": {
			wantindex.TimerLost, []step{fetched, holds, unsigned},
		},
		"has it signed again although fetchers always work on one of its messages": {
			wantindex.TimerLost, []step{fetched, holds, due, unsigned},
		},
		"asks again for a body that the writer has refused": {
			wantindex.BodyLost, []step{fetched, otherBody, failsBy("BodyTooLarge")},
		},
		"ignores an immutable object":                        {wantindex.NothingLost, []step{fetched, failsBy("Immutable")}},
		"ignores a held key that will be refreshed":          {wantindex.NothingLost, []step{fetched, holds, sameBody}},
		"restarts the refresh of a held key without a timer": {wantindex.TimerLost, []step{fetched, holds}},
		"restarts the refresh of a held key whose timer is overdue": {
			wantindex.TimerLost, []step{fetched, holds, timer(time.Minute, cached(stored))},
		},
		"asks again for a held key whose newest body never landed": {
			wantindex.BodyLost, []step{fetched, holds, otherBody},
		},
		"asks again if the API server was restored to before the want": {
			wantindex.BodyLost, []step{laterVersion, fetched, holds, sameBody},
		},
		"publishes in a later epoch if the stream was restored": {
			wantindex.TimerLost, []step{fetched, holds, ahead, sameBody},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			k := b.asks("ns", "cm", "k")
			for _, next := range c.past {
				next(b, k)
			}
			b.clock.Step(interval + time.Second)
			b.Expect(b.found()[k]).To(Equal(c.want))
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
	b.Expect(b.found()).To(Equal(map[pipeline.Key]wantindex.Finding{
		empty: wantindex.BodyLost, retried: wantindex.BodyLost, held: wantindex.TimerLost,
	}))
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
		b.Expect(b.found()).To(BeEmpty(), "before %s", pause)
		b.clock.Step(time.Second)
		b.Expect(b.found()).To(HaveKeyWithValue(k, want), "after %s", pause)
		want = wantindex.Refused
		b.publish(k)
		b.fetched()
	}
	b.of(k).EditedAt = b.clock.Now()
	b.clock.Step(30 * time.Second)
	b.Expect(b.found()).To(HaveKeyWithValue(k, wantindex.BodyLost), "soon after an edit")
}

func TestAKeyThatIsRefreshedInEachIntervalIsRequested(t *testing.T) {
	t.Parallel()
	for name, hold := range map[string]step{
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
				b.timer(k, interval, cached(other))
				b.Expect(b.found()[k]).To(Equal(want), "audit %d", n)
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
	b.of(k).Owners["k"] = annotation.Ownership{State: annotation.Foreign, Fingerprint: "theirs"}
	b.clock.Step(interval + time.Second)
	b.Expect(slices.Compact(b.audit())).To(HaveLen(1), "it is to be repaired")
	b.Expect(b.lost("body_lost")).To(BeZero())
	b.Expect(b.want(k).Finding).To(BeEquivalentTo(wantindex.NothingLost))
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
	b.Expect(b.found()).To(BeEmpty())
	b.clock.Step(interval / 2)
	b.Expect(b.found()).To(HaveKeyWithValue(k, wantindex.BodyLost))
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
		entry := b.of(k).Status.Of(k.Key)
		entry.Error, entry.Since = "BadStatus", b.clock.Now().Add(-since)
		b.entry(k, entry)
	}
	b.clock.Step(interval)
	b.found()
	b.Expect(metrictest.Value(b.registry, "curlmethat_watcher_stale_keys")).To(BeEquivalentTo(2))
}
