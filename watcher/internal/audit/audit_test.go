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

	"github.com/kv8s/curl-me-that/deploy/testkit/natstest"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/proto/annotation"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
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

// bench is an auditor with a real broker, a fake clock and objects.
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
	_, js, epoch := natstest.Ensured(tb, pipeline.Topology{})
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

// request requests a key, with an hourly refresh, and publishes its want.
func (b *bench) request(namespace, name, key string) pipeline.Key {
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

// publish replaces the want of a key.
func (b *bench) publish(k pipeline.Key, change ...func(*v1.Want)) {
	b.Helper()
	want := &v1.Want{
		Namespace: k.Namespace, Name: k.Name, Key: k.Key, Uid: "uid", ResourceVersion: "5", Url: url,
		Epoch: b.epoch, Refresh: durationpb.New(time.Hour),
	}
	for _, c := range change {
		c(want)
	}
	seq := suitetest.Sure(b.client.PublishWant(b.Context(), want, b.want(k).Fence.Seq))
	b.index.Put(k, wantindex.FromWant(want, b.epoch, seq, b.clock.Now()))
}

func (b *bench) want(k pipeline.Key) wantindex.Want {
	return b.index.Wants(wantindex.ObjectOf(k))[k.Key]
}

// hold makes an object hold the body of a key.
func (b *bench) hold(k pipeline.Key) {
	b.entry(k, status.Entry{URL: url, SHA256: stored, Fence: b.want(k).Fence})
	b.of(k).Owners[k.Key] = annotation.Ownership{State: annotation.Ours}
}

func (b *bench) entry(k pipeline.Key, e status.Entry) {
	o := b.of(k)
	s := o.Status.Status()
	s.Keys[k.Key] = e
	o.Status = annotated.EntriesOf(s, nil)
}

// fetched acknowledges all messages for the fetchers.
func (b *bench) fetched() { b.Helper(); natstest.AckRequests(b.TB, b.client.JetStream()) }

// awaitPending waits until n messages are pending for the fetchers.
func (b *bench) awaitPending(n uint64) {
	b.Helper()
	for waiting := uint64(0); waiting < n; {
		consumer := suitetest.Sure(b.client.JetStream().Consumer(b.Context(), pipeline.Requests, pipeline.FetcherConsumer))
		waiting = consumer.CachedInfo().NumPending
	}
}

// timer sets the timer of a key on the fake clock.
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

// due publishes a due message and waits until it is pending.
func (b *bench) due(k pipeline.Key, cause v1.Cause) {
	b.Helper()
	b.Expect(b.client.PublishDue(b.Context(), b.dueOf(k, cause), k.String())).Error().NotTo(HaveOccurred())
	b.awaitPending(1)
}

func (b *bench) result(k pipeline.Key) {
	b.Helper()
	b.Expect(b.client.PublishResult(b.Context(), &v1.Result{
		Want:     &v1.Want{Namespace: k.Namespace, Name: k.Name, Key: k.Key, Uid: "uid", Url: url, Epoch: b.epoch},
		Sequence: b.want(k).Fence.Seq, Outcome: &v1.Result_Content{Content: &v1.Content{Body: []byte("x"), Sha256: other}},
	})).To(Succeed())
}

// runStep runs one step and returns the enqueued objects.
func (b *bench) runStep() (names []types.NamespacedName) {
	b.Helper()
	b.Expect(b.Step(b.Context(), func(name types.NamespacedName) { names = append(names, name) })).To(Succeed())
	return names
}

// audit runs all steps of an interval and returns the enqueued objects.
func (b *bench) audit() (names []types.NamespacedName) {
	b.Helper()
	for range 8 {
		names = append(names, b.runStep()...)
	}
	return names
}

// found audits once and returns the findings.
func (b *bench) found() map[pipeline.Key]wantindex.Finding {
	b.Helper()
	findings := map[pipeline.Key]wantindex.Finding{}
	for _, name := range b.audit() {
		for key, w := range b.index.Wants(name) {
			if w.Finding != wantindex.NothingLost {
				findings[wantindex.KeyOf(name, key)] = w.Finding
			}
		}
	}
	return findings
}

// lost returns the number of lost keys by cause.
func (b *bench) lost(cause string) (float64, error) {
	return suitetest.MetricValue(b.registry, `curlmethat_watcher_lost_keys_total{finding="`+cause+`"}`)
}

func cached(sum string) func(*v1.Due) {
	return func(d *v1.Due) { d.Cached = &v1.Cached{Sha256: sum} }
}

// action is a part of the past of a key.
type action = func(*bench, pipeline.Key)

func fetched(b *bench, _ pipeline.Key) { b.fetched() }

func entry(e status.Entry) action { return func(b *bench, k pipeline.Key) { b.entry(k, e) } }

func failsWith(reason string) action { return entry(status.Entry{ErrorURL: url, Error: reason}) }

func owned(by annotation.OwnerState) action {
	return func(b *bench, k pipeline.Key) {
		b.of(k).Owners[k.Key] = annotation.Ownership{State: by, Fingerprint: "theirs"}
	}
}

// due leaves a refresh pending.
func due(b *bench, k pipeline.Key) { b.due(k, v1.Cause_CAUSE_REFRESH) }

func timer(in time.Duration, change func(*v1.Due)) action {
	return func(b *bench, k pipeline.Key) { b.timer(k, in, change) }
}

func TestAudit(t *testing.T) {
	t.Parallel()
	failing := func(d *v1.Due) { d.Cause, d.Reported = v1.Cause_CAUSE_RECHECK, v1.FailureClass_FAILURE_CLASS_TIMEOUT }
	denied := func(detail v1.FailureDetail) func(*v1.Due) {
		return func(d *v1.Due) { d.Reported, d.Detail = v1.FailureClass_FAILURE_CLASS_ADDRESS_DENIED, detail }
	}
	holds := (*bench).hold
	unsigned := timer(time.Hour, denied(v1.FailureDetail_FAILURE_DETAIL_DENIED_CREDENTIALS))
	otherBody, sameBody := timer(time.Hour, cached(other)), timer(time.Hour, cached(stored))
	waits := func(b *bench, _ pipeline.Key) { b.awaitPending(1) }
	laterVersion := func(b *bench, k pipeline.Key) { b.publish(k, func(w *v1.Want) { w.ResourceVersion = "6" }) }
	now := func(b *bench, k pipeline.Key) { b.publish(k, func(w *v1.Want) { w.Cause = v1.Cause_CAUSE_NOW }) }
	crash := func(b *bench, _ pipeline.Key) {
		b.clock.Step(interval)
		b.Expect(b.found()).To(BeEmpty())
		b.Expect(b.client.JetStream().Conn().Request("$JS.API.CONSUMER.RESET.CURL_RESULTS.writer", []byte(`{"seq": 2}`),
			time.Minute)).To(HaveField("Data", Not(ContainSubstring("error"))))
	}
	ahead := func(b *bench, k pipeline.Key) {
		b.entry(k, status.Entry{URL: url, SHA256: stored, Fence: status.Fence{Epoch: b.epoch, Seq: 1000}})
	}
	for name, c := range map[string]struct { // TestClassify has the combinations
		want wantindex.Finding
		past []action
	}{
		"requests a key without a body again although its timer is set": {
			wantindex.BodyLost, []action{fetched, otherBody},
		},
		"waits for a queued result": {
			wantindex.NothingLost, []action{fetched, otherBody, (*bench).result},
		},
		"requests a key again if NATS crashed and kept a result that the writer has acknowledged": {
			wantindex.BodyLost, []action{fetched, otherBody, (*bench).result, crash},
		},
		"waits for a want that no fetcher has received": {wantindex.NothingLost, []action{waits}},
		"waits for the recheck after a failure that the status shows": {
			wantindex.NothingLost, []action{fetched, timer(time.Hour, failing), failsWith("Timeout")},
		},
		"requests a key again while its due message is pending if no trusted key signed its want": {
			wantindex.BodyLost, []action{fetched, due, unsigned, failsWith("AddressDenied")},
		},
		"ignores an immutable object": {
			wantindex.NothingLost, []action{fetched, failsWith("Immutable")},
		},
		"requests a key of an immutable object again if the status shows another URL": {
			wantindex.BodyLost, []action{fetched, entry(status.Entry{ErrorURL: url + "old", Error: "Immutable"})},
		},
		"ignores a key of another owner": {
			wantindex.NothingLost, []action{fetched, failsWith("KeyExists"), owned(annotation.Foreign)},
		},
		"requests a key again if its other owner removed it": {
			wantindex.BodyLost, []action{fetched, failsWith("KeyExists")},
		},
		"requests a key again if nothing proves that it still has another owner": {
			wantindex.BodyLost, []action{fetched, failsWith("KeyExists"), owned(annotation.Unknown)},
		},
		"ignores a held key that will be refreshed": {wantindex.NothingLost, []action{fetched, holds, sameBody}},
		"restarts the refresh of a held key whose timer is overdue": {
			wantindex.TimerLost, []action{fetched, holds, timer(time.Minute, cached(stored))},
		},
		"requests a held key again if its newest body never landed": {
			wantindex.BodyLost, []action{fetched, holds, otherBody},
		},
		"requests a key again if the API server was restored to a version before the want": {
			wantindex.BodyLost, []action{laterVersion, fetched, holds, sameBody},
		},
		"ignores a held key after curl-now if its newest body is equal": {
			wantindex.NothingLost, []action{holds, now, fetched, sameBody},
		},
		"requests a held key again after curl-now if its newest body did not land": {
			wantindex.BodyLost, []action{holds, now, fetched, otherBody},
		},
		"publishes in a later epoch if the stream was restored": {
			wantindex.TimerLost, []action{fetched, holds, ahead, sameBody},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			k := b.request("ns", "cm", "k")
			for _, next := range c.past {
				next(b, k)
			}
			b.clock.Step(interval + time.Second)
			b.Expect(b.found()[k]).To(Equal(c.want))
		})
	}
}

func TestFutureTimeStampsCountAsOld(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	empty, held, retried := b.request("ns", "cm", "empty"), b.request("ns", "cm", "held"), b.request("ns", "cm", "retried")
	b.fetched()
	b.timer(retried, time.Minute, func(d *v1.Due) { d.Cause = v1.Cause_CAUSE_RETRY })
	b.hold(held)
	b.timer(held, time.Minute, cached(stored))
	b.clock.Step(-time.Hour)
	b.Expect(b.found()).To(Equal(map[pipeline.Key]wantindex.Finding{
		empty: wantindex.BodyLost, retried: wantindex.BodyLost, held: wantindex.TimerLost,
	}))
}

func TestALostKeyIsRequestedEvenIfEachAuditFindsANewRefresh(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.clock.SetTime(time.Now().Add(-interval))
	k := b.request("ns", "cm", "k")
	b.fetched()
	b.hold(k)
	for n, want := range []wantindex.Finding{wantindex.NothingLost, wantindex.BodyLost} {
		// The broker has just stamped this fetch.
		b.clock.SetTime(time.Now().Add(time.Duration(n-1) * interval / 4))
		b.timer(k, interval, cached(other))
		b.Expect(b.found()[k]).To(Equal(want), "audit %d", n)
	}
}

func TestADriftedKeyIsNotLost(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	k := b.request("ns", "cm", "k")
	b.fetched()
	b.hold(k)
	b.of(k).Owners["k"] = annotation.Ownership{State: annotation.Foreign, Fingerprint: "theirs"}
	b.clock.Step(interval + time.Second)
	b.Expect(slices.Compact(b.audit())).To(HaveLen(1), "to be repaired")
	b.Expect(b.lost("body_lost")).To(BeZero())
	b.Expect(b.want(k).Finding).To(BeEquivalentTo(wantindex.NothingLost))
}

func TestAKeyThatWasJustFetchedIsNotLost(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.clock.SetTime(time.Now().Add(-interval))
	k := b.request("ns", "cm", "k")
	b.fetched()
	// The key was parked until now, on the broker's clock. The watch may not show the result yet.
	b.clock.SetTime(time.Now())
	b.due(k, v1.Cause_CAUSE_PARKED)
	b.fetched()
	b.Expect(b.found()).To(BeEmpty())
	b.clock.Step(interval / 2)
	b.Expect(b.found()).To(HaveKeyWithValue(k, wantindex.BodyLost))
}

func TestAKeyIsStaleUntilItsTimerShowsAGoodFetch(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	k := b.request("ns", "cm", "k")
	b.fetched()
	b.hold(k)
	for _, c := range []struct {
		late  time.Duration
		stale bool
	}{{2*time.Hour - 10*time.Minute, false}, {2*time.Hour + time.Minute, true}, {0, false}} {
		b.timer(k, time.Hour, func(due *v1.Due) {
			due.FreshUntil = timestamppb.New(b.clock.Now().Add(-c.late))
		})
		b.clock.Step(interval)
		b.found()
		b.Expect(b.want(k).Stale).To(Equal(c.stale), "%s late", c.late)
	}
}
