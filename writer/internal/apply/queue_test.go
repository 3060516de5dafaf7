package apply

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kv8s/curl-me-that/deploy/testkit/natstest"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/keystate"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/process"
	"github.com/kv8s/curl-me-that/proto/process/budget"
	"github.com/kv8s/curl-me-that/proto/process/metric"
	"github.com/kv8s/curl-me-that/proto/status"
	"github.com/kv8s/curl-me-that/writer/internal/plan"
)

// queued is a queue whose work takes a second for each batch, and that records the batches.
type queued struct {
	*WithT
	*queue
	each time.Duration

	mu      sync.Mutex
	open    sync.WaitGroup
	batches [][]string
	running map[types.NamespacedName]bool
	most    int
}

func newQueued(t *testing.T, concurrency int) *queued {
	t.Helper()
	q := &queued{WithT: NewWithT(t), each: time.Second, running: map[types.NamespacedName]bool{}}
	q.queue = newQueue(concurrency, func(ctx context.Context, ref types.NamespacedName, items []plan.Item) []Write {
		writes, keys := make([]Write, len(items)), make([]string, len(items))
		for i, item := range items {
			writes[i].Outcome, keys[i] = plan.Outcome(item.Key.Key), item.Key.Key
		}
		q.mu.Lock()
		q.Expect(ctx.Err()).NotTo(HaveOccurred(), "the context of the work is cancelled")
		q.Expect(q.running[ref]).To(BeFalse(), "two work on %s", ref)
		q.running[ref], q.batches = true, append(q.batches, keys)
		q.most = max(q.most, len(q.running))
		q.mu.Unlock()
		<-time.After(q.each)
		q.mu.Lock()
		defer q.mu.Unlock()
		delete(q.running, ref)
		return writes
	})
	return q
}

// do adds results of one object in order, and returns when they are queued.
func (q *queued) do(ctx context.Context, namespace, name string, keys ...string) {
	for _, key := range keys {
		q.open.Go(func() {
			item := plan.Item{Key: pipeline.Key{Namespace: namespace, Name: name, Key: key}}
			write, fits := q.Do(ctx, item, 1)
			q.Expect(fits).To(BeTrue())
			q.Expect(write.Outcome).To(Equal(plan.Outcome(key)), "the write of another key")
		})
		synctest.Wait()
	}
}

func TestResultsOfOneObjectShareABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueued(t, 8)
		ctx, cancel := context.WithCancel(t.Context())
		q.do(ctx, "ns", "cm", "0", "1", "2")
		cancel() // the work goes on
		<-time.After(2 * linger)
		q.do(t.Context(), "ns", "cm", "3", "4") // while the first batch runs
		q.open.Wait()
		q.Wait()
		q.Expect(q.batches).To(Equal([][]string{{"0", "1", "2"}, {"3", "4"}}))
	})
}

func TestConcurrencyIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueued(t, 2)
		for _, name := range []string{"a", "b", "c", "d", "e", "a"} {
			q.do(t.Context(), "namespace of "+name, name, "k")
		}
		q.open.Wait()
		q.Expect(q.most).To(Equal(2), "at a time")
		q.Expect(q.batches).To(HaveLen(5))
		q.Expect(q.shares).To(BeEmpty())
	})
}

func TestANamespaceDoesNotWaitForTheBacklogOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueued(t, 2)
		began := time.Now()
		for n := range 20 {
			q.do(t.Context(), "a", strconv.Itoa(n), "k")
		}
		<-time.After(linger + time.Millisecond)
		for _, namespace := range []string{"b", "c"} {
			q.Do(t.Context(), plan.Item{Key: pipeline.Key{Namespace: namespace}}, 1)
		}
		q.Expect(time.Since(began)).To(BeNumerically("<=", 5*time.Second), "each work takes 1 s")
		q.open.Wait()
	})
}

func TestASlowNamespaceGetsThreeQuartersOfTheSpace(t *testing.T) {
	for name, tt := range map[string]struct {
		bytes int
		took  time.Duration
		want  int
	}{
		"slow":              {1, slow + 1, 192},
		"slow, large":       {1 << 20, slow + 1, 48},
		"as fast as others": {1, slow - time.Second, 256},
	} {
		synctest.Test(t, func(t *testing.T) {
			q := newQueued(t, 8)
			add := func(namespace string, bytes int) (fits bool) {
				fits = true
				q.open.Go(func() {
					if _, ok := q.Do(t.Context(), plan.Item{Key: pipeline.Key{Namespace: namespace}}, bytes); !ok {
						fits = false
					}
				})
				synctest.Wait()
				return fits
			}
			q.each = tt.took
			add("a", 0)
			<-time.After(tt.took - time.Second)
			add("a", tt.bytes) // waits for the next batch, so that the namespace is remembered
			<-time.After(time.Second + 2*linger)
			got := 1
			for got < 256 && add("a", tt.bytes) {
				got++
			}
			q.Expect(got).To(Equal(tt.want), name)
			q.Expect(add("b", tt.bytes)).To(BeTrue(), name)
			q.open.Wait()
			q.Expect(q.shares).To(BeEmpty(), name)
		})
	}
}

func aResult() *v1.Result {
	return &v1.Result{
		Want:     &v1.Want{Namespace: "ns", Name: "cm.with.dots", Key: "my_data.txt", Uid: "uid", Url: "https://x", Epoch: 1},
		Sequence: 7,
		Outcome:  &v1.Result_Content{Content: &v1.Content{Body: []byte("body"), Sha256: pipeline.Digest("body")}},
	}
}

// beyond is a time that JSON cannot express.
func beyond() *timestamppb.Timestamp { return &timestamppb.Timestamp{Seconds: 1 << 60} }

// ofObject turns r into a result about the whole object and returns its want.
func ofObject(r *v1.Result) *v1.Want {
	r.Sequence, r.Want.Url, r.Want.Key = 0, "", "*"
	r.Outcome = &v1.Result_Reconcile{Reconcile: &v1.Reconcile{}}
	return r.GetWant()
}

func fail(r *v1.Result, f *v1.Failure) { r.Outcome = &v1.Result_Failure{Failure: f} }

func encodeResult(tb testing.TB, r *v1.Result) []byte {
	tb.Helper()
	data, err := proto.Marshal(r)
	NewWithT(tb).Expect(err).NotTo(HaveOccurred())
	return data
}

func TestRead(t *testing.T) {
	const (
		malformed = v1.FailureClass_FAILURE_CLASS_MALFORMED
		digest    = v1.FailureClass_FAILURE_CLASS_DIGEST_MISMATCH
		protected = v1.FailureClass_FAILURE_CLASS_WRITE_FAILED
	)
	for name, tt := range map[string]struct {
		change func(*v1.Result)
		class  v1.FailureClass
	}{
		"good":                    {func(*v1.Result) {}, 0},
		"failure":                 {func(r *v1.Result) { r.Outcome = &v1.Result_Failure{Failure: &v1.Failure{}} }, 0},
		"failure without url":     {func(r *v1.Result) { r.Want.Url, r.Outcome = "", &v1.Result_Failure{} }, malformed},
		"required digest":         {func(r *v1.Result) { r.Want.Sha256 = r.GetContent().GetSha256() }, 0},
		"other digest":            {func(r *v1.Result) { r.GetContent().Body = []byte("other") }, digest},
		"no digest":               {func(r *v1.Result) { r.GetContent().Sha256 = "" }, digest},
		"not the required digest": {func(r *v1.Result) { r.Want.Sha256 = strings.Repeat("0", 64) }, digest},
		"no outcome":              {func(r *v1.Result) { r.Outcome = nil }, malformed},
		"no uid":                  {func(r *v1.Result) { r.Want.Uid = "" }, malformed},
		"no sequence":             {func(r *v1.Result) { r.Sequence = 0 }, malformed},
		"epoch past the end":      {func(r *v1.Result) { r.Want.Epoch = status.MaxEpoch + 1 }, malformed},
		"epoch below zero":        {func(r *v1.Result) { r.Want.Epoch = -1 }, malformed},
		"last epoch":              {func(r *v1.Result) { r.Want.Epoch = status.MaxEpoch }, 0},
		"no namespace":            {func(r *v1.Result) { r.Want.Namespace = "" }, malformed},
		"time of observation":     {func(r *v1.Result) { r.ObservedAt = beyond() }, malformed},
		"time of failure":         {func(r *v1.Result) { fail(r, &v1.Failure{FirstFailedAt: beyond()}) }, malformed},
		"time of next try":        {func(r *v1.Result) { fail(r, &v1.Failure{NextAt: beyond()}) }, malformed},
		"illegal key":             {func(r *v1.Result) { r.Want.Key = "$patch" }, malformed},
		"annotations":             {func(r *v1.Result) { ofObject(r) }, 0},
		"annotations, no uid":     {func(r *v1.Result) { ofObject(r).Uid = "" }, malformed},
		"annotations of key":      {func(r *v1.Result) { ofObject(r).Key = "k" }, malformed},
		"annotations, time":       {func(r *v1.Result) { ofObject(r); r.ObservedAt = beyond() }, malformed},
		"body of the object":      {func(r *v1.Result) { r.Want.Key = "*" }, malformed},
		"path as name":            {func(r *v1.Result) { r.Want.Name = "../../secrets/x" }, malformed},
		"path as namespace":       {func(r *v1.Result) { r.Want.Namespace = "../../nodes" }, malformed},
		"protected namespace":     {func(r *v1.Result) { r.Want.Namespace = "kube-system" }, protected},
		"protected name":          {func(r *v1.Result) { r.Want.Name = "kube-root-ca.crt" }, protected},
	} {
		t.Run(name, func(t *testing.T) {
			r := aResult()
			tt.change(r)
			subject := pipeline.KeyOf(r.GetWant()).Content()
			if r.GetReconcile() != nil {
				subject = pipeline.KeyOf(r.GetWant()).Reconcile()
			}
			item, err := read(subject, encodeResult(t, r), []string{"kube-system"})
			g := NewWithT(t)
			if tt.class == 0 {
				g.Expect(err).NotTo(HaveOccurred())
			} else {
				g.Expect(err).To(HaveOccurred())
				g.Expect(pipeline.FailureClass(err)).To(Equal(tt.class))
			}
			g.Expect(item.Key).To(Equal(pipeline.KeyOf(r.GetWant())))
		})
	}
}

// The subject identifies the object and decides who may publish: fetchers publish bodies and failures, and
// only the watcher may request removals.
func TestReadRefusesAnotherSubject(t *testing.T) {
	key, ofObjectResult := pipeline.KeyOf(aResult().GetWant()), aResult()
	objectKey := pipeline.KeyOf(ofObject(ofObjectResult))
	for subject, r := range map[string]*v1.Result{
		pipeline.Key{Namespace: "other", Name: key.Name, Key: key.Key}.Content():       aResult(),
		pipeline.Key{Namespace: key.Namespace, Name: "other", Key: key.Key}.Content():  aResult(),
		pipeline.Key{Namespace: key.Namespace, Name: key.Name, Key: "other"}.Content(): aResult(),
		key.Reconcile():     aResult(),
		objectKey.Content(): ofObjectResult,
		objectKey.Failure(): ofObjectResult,
	} {
		_, err := read(subject, encodeResult(t, r), nil)
		NewWithT(t).Expect(err).To(MatchError(errMalformed), subject)
	}
}

func FuzzRead(f *testing.F) {
	f.Add(pipeline.KeyOf(aResult().GetWant()).Content(), encodeResult(f, aResult()))
	f.Add("curl.result.reconcile.a.b.c", []byte{})
	f.Add("curl.result.content.a.%2E%2E%2Fb.c", []byte("\xff"))
	f.Fuzz(func(t *testing.T, subject string, data []byte) {
		item, err := read(subject, data, []string{"kube-system"})
		if err != nil {
			return
		}
		if len(validation.IsDNS1123Label(item.Key.Namespace)) > 0 || len(validation.IsDNS1123Subdomain(item.Key.Name)) > 0 ||
			item.Key.Namespace == "kube-system" || !item.OfObject() &&
			(len(validation.IsConfigMapKey(item.Key.Key)) > 0 || item.Fence.Seq == 0) {
			t.Errorf("read %+v", item)
		}
	})
}

// An apply is bound to the planned version and never changes or removes a key.
func TestApplyOnlyAddsKeys(t *testing.T) {
	unrecorded := func() *plan.Object {
		return &plan.Object{
			ConfigMap: keystate.ConfigMap{UID: "u"}, Freshness: plan.Live, ResourceVersion: "7",
			Values: map[string]string{"theirs": "digest"},
		}
	}
	added := func() plan.Plan {
		return plan.Plan{
			Values: map[string]*plan.Value{"k": {Body: []byte("<a>")}, "b": {Body: []byte{0xff}, Binary: true}}, SetStatus: true,
			Status: "{}",
		}
	}
	for name, tt := range map[string]struct {
		change func(*plan.Object, *plan.Plan)
		want   bool
	}{
		"new keys":        {func(*plan.Object, *plan.Plan) {}, true},
		"an existing key": {func(_ *plan.Object, p *plan.Plan) { p.Values["theirs"] = &plan.Value{} }, false},
		"a removed key":   {func(_ *plan.Object, p *plan.Plan) { p.Values["gone"] = nil }, false},
		"values not read": {func(o *plan.Object, _ *plan.Plan) { o.Values = nil }, false},
		"not live":        {func(o *plan.Object, _ *plan.Plan) { o.Freshness = plan.FromPatch }, false},
		"no value":        {func(_ *plan.Object, p *plan.Plan) { p.Values = nil }, false},
		"no status":       {func(_ *plan.Object, p *plan.Plan) { p.Status = "" }, false},
	} {
		o, p := unrecorded(), added()
		tt.change(o, &p)
		NewWithT(t).Expect(beginsRecord(o, p)).To(Equal(tt.want), name)
	}
	body, err := encodeApply(types.NamespacedName{Namespace: "ns", Name: "cm"}, unrecorded(), added())
	const want = `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"cm","namespace":"ns","uid":"u",` +
		`"resourceVersion":"7",` +
		`"annotations":{"x-kv8s.io/curl-status":"{}"}},"data":{"k":"<a>"},"binaryData":{"b":"/w=="}}` + "\n"
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	NewWithT(t).Expect(string(body)).To(Equal(want))
}

func TestAReadObjectCoversItsWant(t *testing.T) {
	for _, c := range []struct {
		read, seen string
		covers     bool
	}{
		{read: "10", seen: "", covers: true},
		{read: "10", seen: "9", covers: true},
		{read: "10", seen: "10", covers: true},
		{read: "10", seen: "11"},
		{read: "10", seen: "forged"},
		{read: "unknown", seen: "9"},
		{read: "unknown", seen: "unknown", covers: true},
	} {
		read := &task{items: []plan.Item{{Result: &v1.Result{Want: &v1.Want{ResourceVersion: c.seen}}}}}
		NewWithT(t).Expect(read.covers(c.read)).To(Equal(c.covers), "%q after %q", c.read, c.seen)
	}
}

// TestHistoryShares lets a tenant change 1 MB bodies every 10 s for an hour of injected time, with two writers. Each
// has its own shares, so the tenant gets at most two of 4 MiB, in a history of 16 MiB.
func TestHistoryShares(t *testing.T) {
	t.Parallel()
	const share, size, writers = 4 << 20, 1_000_000, 2
	g := NewWithT(t)
	g.SetDefaultEventuallyTimeout(time.Minute)
	_, js, _ := natstest.Ensured(t, pipeline.Topology{HistoryBytes: 16 << 20})
	client := pipeline.NewClient(js)
	now := time.Now()
	var histories [writers]*history
	config := HistoryConfig{Bytes: budget.Config{Burst: share, Refill: pipeline.HistoryAge}}
	for i := range histories {
		metrics := NewMetrics(metric.New(prometheus.NewRegistry(), "writer"))
		h, err := newHistory(config, client, metrics, process.NewSampledLog(zerolog.Nop()))
		g.Expect(err).NotTo(HaveOccurred())
		h.bytes = budget.New(config.Bytes, func() time.Time { return now })
		histories[i] = h
	}
	number := 0
	keep := func(namespace string, body []byte) (digest string) {
		number++
		digest = pipeline.Digest(body)
		histories[number%writers].keep(t.Context(), plan.NewItem(&v1.Result{
			Want: &v1.Want{Namespace: namespace, Name: "cm", Key: "key"}, Sequence: uint64(number),
			Outcome: &v1.Result_Content{Content: &v1.Content{Body: body, Sha256: digest}},
		}), false)
		return digest
	}
	kept := func(namespace, digest string) func() error {
		return func() error { _, err := client.Body(t.Context(), namespace, digest); return err }
	}
	large := make([]byte, size-8)
	_, _ = rand.Read(large)
	var quiet []string
	for n := range 360 {
		digest := keep("hostile", append([]byte(fmt.Sprintf("%08d", n)), large...))
		if n < share/size*writers {
			g.Eventually(kept("hostile", digest)).Should(Succeed(), "body %d", n)
		}
		if n%72 == 0 {
			digest := keep("quiet", bytes.Repeat([]byte(strconv.Itoa(n)), 100))
			g.Eventually(kept("quiet", digest)).Should(Succeed())
			quiet = append(quiet, digest)
			number++ // so that the next large body goes to another writer
		}
		now = now.Add(10 * time.Second)
	}
	for _, digest := range quiet {
		g.Expect(kept("quiet", digest)()).To(Succeed())
	}
	key := pipeline.Key{Namespace: "quiet", Name: "cm", Key: "key"}
	g.Expect(client.Versions(t.Context(), key)).To(HaveLen(len(quiet)))
}
