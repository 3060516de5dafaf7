package reconcile_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/testkit/natstest"
	"github.com/kv8s/curl-me-that/proto/annotation"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/status"
	"github.com/kv8s/curl-me-that/watcher/internal/annotated"
	"github.com/kv8s/curl-me-that/watcher/internal/reconcile"
)

func TestTheFirstEditIsPublishedAtOnceAndABurstIsCoalesced(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.request("https://example.com/1", "k")
	b.Expect(b.reconcile()).To(BeZero())
	b.Expect(b.published()).To(Equal(1))
	b.clock.Step(coalesce / 5)
	b.request("https://example.com/2", "k")
	b.Expect(b.reconcile()).To(Equal(coalesce * 4 / 5))
	b.Expect(b.published()).To(Equal(1))
	b.request("https://example.com/3", "k")
	b.clock.Step(coalesce * 4 / 5)
	b.Expect(b.reconcile()).To(BeZero())
	b.Expect(b.published()).To(Equal(2))
}

func TestTheBrokersClockAffectsOnlyTheTimeOfAWant(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.request("https://example.com/1", "k")
	b.reconcile()
	b.Expect(b.index.Wants(cm)["k"].At).To(BeTemporally("==", b.stamps.Now()))
	b.stamps.Step(-time.Hour)
	b.request("https://example.com/2", "k")
	b.Expect(b.reconcileLater()).To(BeZero())
	b.Expect(b.published()).To(Equal(2))
}

func TestTheWriterIsAskedForAPinnedBodyEvenIfTheBacklogIsFullAfterItsWant(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(d *reconcile.Deps) {
		for seq := range uint64(511) {
			d.Backlog.Add(cm.Namespace, seq)
		}
	})
	pinned := b.keep("body")
	b.request("https://example.com/1", "a", "b")
	b.object.Request.SHA256 = map[string]string{"a": pinned, "b": pinned}
	b.Expect(b.try()).To(MatchError(reconcile.ErrBacklogFull))
	b.Expect(b.published()).To(Equal(1))
	b.Expect(b.requests()).To(Equal(1))
}

func TestAPinnedBodyThatTheKeyHoldsIsFetchedFromANewURL(t *testing.T) {
	t.Parallel()
	for name, entry := range map[string]status.Entry{
		"of the object": {}, "copied from another object": {UIDMark: "other"}, "failing": {Error: "ConnectFailed"},
	} {
		b := newBench(t)
		pinned := b.keep("body")
		b.object.Request.SHA256 = map[string]string{"k": pinned}
		entry.URL, entry.SHA256 = "https://example.com/1", pinned
		b.object.Status = annotated.EntriesOf(status.Status{Keys: map[string]status.Entry{"k": entry}}, nil)
		b.request("https://example.com/2", "k")
		b.object.Owners["k"] = annotation.Ownership{State: annotation.Ours}
		b.reconcile()
		b.Expect(b.want("k")).To(HaveField("Cached", BeNil()), name)
	}
}

func TestTheHistoryIsReadOnlyForAPlanThatIsCarriedOut(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	pinned := b.keep("body")
	var looks, reads atomic.Int64
	spy := natstest.Connect(t, b.broker).Conn()
	for subject, count := range map[string]*atomic.Int64{
		"STREAM.INFO." + pipeline.History: &looks, "DIRECT.GET." + pipeline.History + ".>": &reads,
	} {
		b.Expect(spy.Subscribe("$JS.API."+subject, func(*nats.Msg) { count.Add(1) })).Error().NotTo(HaveOccurred())
	}
	b.Expect(spy.Flush()).To(Succeed())
	b.request("https://example.com/1", "k")
	b.reconcile()
	b.object.Request.SHA256 = map[string]string{"k": pinned}
	for range 3 {
		b.Expect(b.reconcile()).To(Equal(coalesce))
	}
	b.reconcileLater()
	b.Expect(b.want("k").GetCached().GetSha256()).To(Equal(pinned))
	b.Expect(b.requests()).To(Equal(1))
	b.Eventually(looks.Load).Should(BeEquivalentTo(2))
	b.Expect(looks.Load()).To(BeEquivalentTo(2), "of the plan that was carried out: the stream and its subject")
	b.Expect(reads.Load()).To(BeZero(), "no body")
}

// One object may pin 128 keys to digests that the history does not have, and change them ten times a second.
func TestTheHistoryIsAskedForFewPinsOfAnObject(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.keep("body")
	var looks atomic.Int64
	spy := natstest.Connect(t, b.broker).Conn()
	b.Expect(spy.Subscribe("$JS.API.STREAM.INFO."+pipeline.History, func(*nats.Msg) { looks.Add(1) })).Error().
		NotTo(HaveOccurred())
	b.Expect(spy.Flush()).To(Succeed())
	var keys []string
	b.object.Request.SHA256 = map[string]string{}
	for n := range 2 * pipeline.MaxPinsFilled {
		k := fmt.Sprint("k", n)
		keys, b.object.Request.SHA256[k] = append(keys, k), pipeline.Digest(k)
	}
	b.request("https://example.com", keys...)
	b.reconcile()
	b.Expect(b.published()).To(Equal(len(keys)))
	b.Expect(b.client.JetStream().Conn().Flush()).To(Succeed())
	b.Expect(spy.Flush()).To(Succeed())
	b.Eventually(looks.Load).Should(BeNumerically(">=", pipeline.MaxPinsFilled))
	b.Expect(looks.Load()).To(BeNumerically("<=", 2*pipeline.MaxPinsFilled), "two requests for each look-up")
}

func TestAFailedPublishDelaysNoRetry(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.request("https://example.com", "k")
	b.broker.Stop()
	for range 3 {
		again, err := b.Reconcile(t.Context(), cm)
		b.Expect(err).To(HaveOccurred())
		b.Expect(again).To(BeZero())
	}
}

func TestAnotherWatcherWasFaster(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.request("https://example.com", "k")
	b.anotherPublishes("https://example.com", 0)
	b.reconcile()
	b.Expect(b.published()).To(Equal(1), "the other watcher's want")
	b.anotherPublishes("https://example.com/other", 1)
	b.request("https://example.com/new", "k")
	b.clock.Step(coalesce)
	b.Expect(b.try()).To(MatchError(pipeline.ErrSuperseded))
	b.reconcile()
	b.Expect(b.published()).To(Equal(3))
	b.Expect(b.cause("k")).To(Equal(v1.Cause_CAUSE_CHANGED))
}

func TestAnotherWatcherWasFasterAndItsWantHasAResult(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.request("https://example.com", "k")
	b.anotherPublishes("https://example.com", 0)
	b.write("k")
	b.Expect(b.try()).To(MatchError(pipeline.ErrSuperseded))
	b.reconcile()
	b.Expect(b.published()).To(Equal(1))
	b.Expect(b.log.Contents()).To(BeEmpty())

	t.Log("A drift in the meantime is repaired at once.")
	b.removeKey("k")
	b.reconcile()
	b.Expect(b.published()).To(Equal(2))
	b.Expect(b.cause("k")).To(Equal(v1.Cause_CAUSE_DRIFT))
}

func TestAFenceOfALostStreamIsNoResult(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.request("https://example.com", "k")
	s := b.object.Status.Status()
	s.Keys["k"] = status.Entry{
		URL: "https://example.com/other", SHA256: sum,
		Fence: status.Fence{Epoch: b.index.Epoch(), Seq: 1},
	}
	b.object.Status = annotated.EntriesOf(s, nil)
	b.object.Owners["k"] = annotation.Ownership{State: annotation.Ours}
	b.reconcile()
	b.Expect(b.published()).To(Equal(2))
	b.Expect(b.want("k").GetEpoch()).To(Equal(b.index.Epoch() + 1))
}

func TestGarbageAndTombstonesAreOverwritten(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.request("https://example.com", "garbage", "tombstone")
	b.Expect(b.client.JetStream().Publish(t.Context(), key("garbage").WantSubject(), []byte("garbage"))).Error().
		NotTo(HaveOccurred())
	b.Expect(b.client.PublishTombstone(t.Context(), key("tombstone"), 0)).Error().NotTo(HaveOccurred())
	b.reconcile()
	b.Expect(b.published()).To(Equal(4))
}

func TestAFailingKeyDoesNotDelayOthers(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.request("https://example.com", "a", "b")
	b.object.Request.Pairs[0].URL = "https://example.com/" + strings.Repeat("x", pipeline.MaxRequestBytes)
	b.Expect(b.try()).To(MatchError(pipeline.ErrTooLarge))
	b.Expect(b.cause("b")).To(Equal(v1.Cause_CAUSE_NEW))
}

// A slow broker does not end the session, so the stream is not read again.
func TestAnUnacknowledgedWantIsRetractedWithItsKey(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*bench){
		"deleted":     func(b *bench) { b.object = nil },
		"unrequested": func(b *bench) { b.request("https://example.com") },
		"occupied": func(b *bench) {
			b.object.Owners["k"] = annotation.Ownership{State: annotation.Foreign, Fingerprint: "x"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.request("https://example.com", "k")
			b.mute = true
			b.Expect(b.try()).NotTo(Succeed())
			b.Expect(b.published()).To(Equal(1))
			b.mute = false
			change(b)
			b.clock.Step(coalesce)
			b.Expect(b.try()).To(MatchError(pipeline.ErrSuperseded))
			b.reconcileLater()
			want, _, err := b.client.LastWant(t.Context(), key("k"))
			b.Expect(err).NotTo(HaveOccurred())
			b.Expect(want).To(BeNil())
		})
	}
}

func TestAnUnacknowledgedWantIsNotPublishedAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.request("https://example.com", "k")
	b.mute = true
	b.Expect(b.try()).NotTo(Succeed())
	_, _, found := b.index.Oldest()
	b.Expect(found).To(BeFalse(), "the stream may lack the want")
	b.mute = false
	b.reconcileLater()
	b.Expect(b.published()).To(Equal(1))
	b.Expect(b.cause("k")).To(Equal(v1.Cause_CAUSE_NEW))
}

func TestAResultIsRemembered(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.request("https://example.com", "k")
	b.reconcile()
	b.write("k")
	b.reconcileLater()
	b.Expect(b.index.Wants(cm)["k"].Answered).To(BeTrue())
	want, _ := b.index.Want(key("k"))
	want.Fingerprint = "none"
	b.index.Put(key("k"), want)
	b.reconcileLater()
	b.Expect(b.index.Wants(cm)["k"].Fingerprint).To(BeEmpty(), "the next drift is a new one")
	b.object.Status = annotated.Entries{} // replaced by an object without our status
	b.removeKey("k")
	b.reconcileLater()
	b.Expect(b.cause("k")).To(Equal(v1.Cause_CAUSE_DRIFT))
	b.Expect(b.reasons()).To(HaveExactElements("Drifted"))
}

// keep adds a body to the history, and returns its digest.
func (b *bench) keep(body string) (digest string) {
	b.t.Helper()
	js := b.client.JetStream()
	b.Expect(pipeline.Ensure(b.t.Context(), js, pipeline.Topology{HistoryBytes: 16 << 20})).Error().NotTo(HaveOccurred())
	digest = pipeline.Digest(body)
	b.Expect(js.Publish(b.t.Context(), pipeline.BodySubject(cm.Namespace, digest), []byte(body))).Error().
		NotTo(HaveOccurred())
	return digest
}

// anotherPublishes replaces the want at a sequence like another watcher.
func (b *bench) anotherPublishes(url string, last uint64) {
	b.t.Helper()
	w := &v1.Want{Namespace: cm.Namespace, Name: cm.Name, Key: "k", Uid: "uid", Url: url, Epoch: b.index.Epoch()}
	b.Expect(b.client.PublishWant(b.t.Context(), w, last)).Error().NotTo(HaveOccurred())
}
