package apply_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/proto/annotation"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/failure"
	"github.com/kv8s/curl-me-that/proto/kube"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/process/metric"
	"github.com/kv8s/curl-me-that/proto/signature"
	"github.com/kv8s/curl-me-that/proto/status"
	"github.com/kv8s/curl-me-that/writer/internal/apiserver"
	"github.com/kv8s/curl-me-that/writer/internal/apply"
	"github.com/kv8s/curl-me-that/writer/internal/plan"
)

// FuzzPromises simulates people, watcher and fetcher around the writer and a small API server, in an order that
// depends on the seed. Others act between any two requests of the writer. Messages arrive late, twice
// and out of order. Requests fail and responses get lost. The promises must hold after each patch
// and at the end.
func FuzzPromises(f *testing.F) {
	for seed := range uint64(300) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		synctest.Test(t, func(t *testing.T) {
			m := newModel(t, seed)
			for range 60 {
				m.step()
			}
			m.calm()
		})
	})
}

func TestALateResultIsDroppedNextToOneOfADeletedObject(t *testing.T) {
	m := newModel(t, 0)
	m.peace = true
	begin := func() (fetched func(seq uint64, version string) *v1.Result) {
		m.recreate()
		pair := annotation.Pair{Key: "a", URL: modelURLs[0]}
		next := m.server.object.DeepCopy()
		next.Annotations, next.Data = map[string]string{annotation.DefaultKey: "a=" + pair.URL}, nil
		m.server.replace(next, "person")
		whole := m.server.whole()
		return func(seq uint64, version string) *v1.Result {
			body := pair.URL + "|" + string(whole.UID) + "|" + version
			content := &v1.Content{Body: []byte(body), Sha256: hash(body)}
			return &v1.Result{
				Want: m.want(whole, pair), Sequence: seq, ObservedAt: timestamppb.Now(),
				Outcome: &v1.Result_Content{Content: content},
			}
		}
	}
	check := func(want plan.Outcome, results ...*v1.Result) {
		t.Helper()
		items := make([]plan.Item, len(results))
		for i, r := range results {
			items[i] = plan.NewItem(r)
		}
		if got := m.applier.Apply(t.Context(), modelRef, items)[0].Outcome; got != want {
			t.Errorf("outcome %q, want %q", got, want)
		}
	}
	deleted := begin()
	check(plan.Written, deleted(11, "0"))
	check(plan.Unchanged, deleted(13, "0"))
	fetched := begin()
	check(plan.Written, fetched(17, "0"))
	check(plan.Unchanged, fetched(20, "0"))
	check(plan.Late, fetched(18, "1"), deleted(13, "0"))
}

// slowServer takes five seconds for a patch, and refuses one with several keys.
type slowServer struct{ *modelServer }

// RoundTrip implements http.RoundTripper.
func (s slowServer) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodPatch {
		return s.serve(r)
	}
	select {
	case <-time.After(5 * time.Second):
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	body := suitetest.Sure(io.ReadAll(r.Body))
	if bytes.Count(body, []byte("|uid-")) > 1 {
		return refusal(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	return s.serve(r)
}

func TestResultsForWhichNoTimeIsLeftAreNotRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel(t, 0)
		m.peace = true
		m.applier, m.signer = newApplier(t, &rest.Config{
			Host: "http://model", Transport: slowServer{m.server},
			ContentConfig: rest.ContentConfig{ContentType: "application/json"},
		})
		var items []plan.Item
		next := m.server.object.DeepCopy()
		next.Annotations = map[string]string{annotation.DefaultKey: "a=" + modelURLs[0]}
		for n := range 8 {
			next.Annotations[annotation.DefaultKey] += fmt.Sprintf(" k%d=%s", n, modelURLs[0])
		}
		m.server.replace(next, "person")
		for n := range 8 {
			w := m.want(m.server.whole(), annotation.Pair{Key: fmt.Sprint("k", n), URL: modelURLs[0]})
			body := fmt.Sprint(modelURLs[0], "|", w.GetUid(), "|", n)
			items = append(items, plan.NewItem(&v1.Result{
				Want: w, Sequence: uint64(n + 1), ObservedAt: timestamppb.Now(),
				Outcome: &v1.Result_Content{Content: &v1.Content{Body: []byte(body), Sha256: hash(body)}},
			}))
		}
		var got []plan.Outcome
		for _, applied := range m.applier.Apply(t.Context(), modelRef, items) {
			got = append(got, applied.Outcome)
		}
		NewWithT(t).Expect(got).To(Equal([]plan.Outcome{
			plan.Written, plan.Written, plan.Written, "", plan.Deferred, plan.Deferred, plan.Deferred, plan.Deferred,
		}), "in 22 s")
	})
}

const (
	modelNamespace = "ns"
	modelName      = "cm"
)

var (
	modelRef  = types.NamespacedName{Namespace: modelNamespace, Name: modelName}
	modelKeys = []string{"a", "b"}
	grammar   = suitetest.Sure(annotation.New(annotation.Defaults()))
	modelURLs = []string{"https://one.example.com", "https://two.example.com/x?y=z"}
)

// model is a world with one ConfigMap.
type model struct {
	t       *testing.T
	rand    *rand.Rand
	server  *modelServer
	applier *apply.Applier
	signer  *signature.Signer
	trace   bytes.Buffer

	uid   int
	seq   uint64
	peace bool // nobody interferes, nothing fails
	lost  bool // the response to the current request will be lost
	muted bool // an Event was delayed
	// wants are published wants for the fetcher, oldest first.
	wants []*v1.Want
	// seqs are the sequences of wants.
	seqs []uint64
	// queue has the results for the writer, and done the acknowledged ones.
	queue, done []*v1.Result
	// batch has the results that the writer applies now.
	batch []*v1.Result
	// applied has the fences of written values by uid and key.
	applied map[string]status.Fence
	// required has the Events that must exist at the end.
	required map[string]bool
	// possible has the Events that may exist.
	possible map[string]bool
	// faults counts failed requests.
	faults int
}

func newModel(t *testing.T, seed uint64) *model {
	t.Helper()
	m := &model{
		t: t, rand: rand.New(rand.NewPCG(seed, 1)), seq: 10,
		applied: map[string]status.Fence{}, required: map[string]bool{}, possible: map[string]bool{},
	}
	m.server = &modelServer{events: map[string]corev1.Event{}, before: m.interfere, fault: m.fault, patched: m.check}
	m.applier, m.signer = newApplier(t, &rest.Config{
		Host: "http://model", Transport: m.server, ContentConfig: rest.ContentConfig{ContentType: "application/json"},
	})
	m.recreate()
	return m
}

// newApplier returns an applier like the writer's, and the signer that it trusts.
func newApplier(t *testing.T, cluster *rest.Config) (*apply.Applier, *signature.Signer) {
	t.Helper()
	client := suitetest.Sure(apiserver.NewClient(cluster))
	b := apiserver.NewBreaker(apiserver.BreakerDeps{Probe: func(context.Context) error { return nil }, Log: zerolog.Nop()})
	ctx, cancel := context.WithCancel(t.Context())
	go b.Run(ctx)
	t.Cleanup(cancel)
	seed, keys, err := signature.WriteFiles(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	signer := suitetest.Sure(signature.LoadSigner(seed))
	signatures := suitetest.Sure(signature.LoadVerifier(keys))
	applier := suitetest.Sure(apply.New(apply.Config{
		Planner: plan.Planner{Prune: true},
	}, apply.Deps{
		Decoder:    plan.Decoder{Grammar: grammar, Selector: labels.Everything()},
		Client:     client,
		Breaker:    b,
		Signatures: signatures,
		Recorder:   kube.NewRecorder(client.Events(), "writer", clock.RealClock{}, kube.EventBudget{}),
		Metrics:    apply.NewMetrics(metric.New(prometheus.NewRegistry(), "writer")),
		Log:        zerolog.Nop(),
	}))
	return applier, signer
}

func (m *model) log(format string, args ...any) { fmt.Fprintf(&m.trace, format+"\n", args...) }

func (m *model) broken(format string, args ...any) {
	m.t.Helper()
	m.t.Fatalf("%s\nafter\n%s", fmt.Sprintf(format, args...), m.trace.String())
}

func (m *model) step() {
	switch m.rand.IntN(8) {
	case 0:
		m.person()
	case 1, 2:
		m.watch()
	case 3, 4:
		m.fetch(m.rand.IntN(4) == 0)
	case 5:
		if len(m.done) > 0 { // delivered again
			m.queue = append(m.queue, m.done[m.rand.IntN(len(m.done))])
		}
	default:
		m.write()
	}
}

// interfere lets others act between the requests of the writer.
func (m *model) interfere() {
	if m.peace || m.rand.IntN(4) > 0 {
		return
	}
	switch m.rand.IntN(3) {
	case 0:
		m.person()
	case 1:
		m.watch()
	default:
		m.fetch(false)
	}
}

func (m *model) fault(r *http.Request) (lost, refused bool) {
	m.lost = false
	if m.peace {
		return false, false
	}
	lost, refused = m.rand.IntN(20) == 0, m.rand.IntN(20) == 0
	if lost || refused {
		m.log("  request lost=%v refused=%v", lost, refused)
		m.faults++
		for _, r := range m.batch {
			if m.faults >= 3 { // in a row, the writer gives up, because the server is ready
				m.possible[r.GetWant().GetUid()+" "+failure.Reason(v1.FailureClass_FAILURE_CLASS_WRITE_FAILED)] = true
			}
		}
	}
	m.lost = lost
	m.muted = m.muted || refused && r.Method == http.MethodPost
	return lost, refused
}

// recreate creates a new object with the same name.
func (m *model) recreate() {
	m.uid++
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: modelNamespace, Name: modelName, UID: types.UID(fmt.Sprintf("uid-%d", m.uid)),
		Annotations: map[string]string{annotation.DefaultKey: m.pairs()},
	}}
	if m.rand.IntN(4) == 0 {
		cm.Data = map[string]string{m.key(): "person's own"}
	}
	m.server.object, m.server.owners = nil, map[string]owner{}
	m.server.replace(cm, "person")
	m.log("created %s: %s %q", cm.UID, cm.Annotations[annotation.DefaultKey], cm.Data)
}

func (m *model) pairs() string {
	var pairs []string
	for _, key := range modelKeys {
		if m.rand.IntN(4) > 0 {
			pairs = append(pairs, key+"="+modelURLs[m.rand.IntN(len(modelURLs))])
		}
	}
	if len(pairs) == 0 {
		return "nonsense"
	}
	return strings.Join(pairs, " ")
}

func (m *model) key() string { return modelKeys[m.rand.IntN(len(modelKeys))] }

// body returns one of two bodies that the URL has for an object.
func (m *model) body(url string, uid string) string {
	text := url + "|" + uid + "|" + string(rune('0'+m.rand.IntN(2)))
	if strings.HasSuffix(text, "1") && m.rand.IntN(2) == 0 {
		return "\xff" + text
	}
	return text
}

// person edits the object.
func (m *model) person() {
	s := m.server
	if s.object == nil {
		m.recreate()
		return
	}
	next := s.object.DeepCopy()
	if next.Data == nil {
		next.Data = map[string]string{}
	}
	key := m.key()
	switch m.rand.IntN(9) {
	case 0, 1:
		next.Annotations[annotation.DefaultKey] = m.pairs()
	case 2:
		delete(next.Annotations, annotation.DefaultKey)
	case 3:
		if _, suspended := next.Annotations["x-kv8s.io/curl-suspend"]; suspended {
			delete(next.Annotations, "x-kv8s.io/curl-suspend")
		} else {
			next.Annotations["x-kv8s.io/curl-suspend"] = "true"
		}
	case 4:
		next.Data["theirs"] = fmt.Sprint(s.version)
	case 5:
		delete(next.BinaryData, key)
		next.Data[key] = fmt.Sprintf("edited %d", s.version)
	case 6:
		delete(next.BinaryData, key)
		delete(next.Data, key)
		if m.rand.IntN(2) == 0 { // the person writes what would be fetched
			next.Data[key] = strings.TrimPrefix(m.body(modelURLs[0], string(next.UID)), "\xff")
		}
	case 7:
		if m.rand.IntN(4) == 0 {
			m.log("emptied managedFields")
			s.owners = nil
		}
	case 8:
		if m.rand.IntN(3) == 0 {
			m.log("deleted %s", next.UID)
			s.object = nil
			return
		}
	}
	s.replace(next, "person")
	m.log("edited: rv %s %v data %q", next.ResourceVersion, next.Annotations, values(next))
}

// watch publishes the wants of the object like the watcher.
func (m *model) watch() {
	s := m.server
	if s.object == nil {
		return
	}
	whole := s.whole()
	request, err := grammar.Parse(whole.Annotations)
	if request.Suspended {
		return
	}
	noted := suitetest.Sure(status.Parse(whole.Annotations[annotation.StatusKey]))
	askWriter := request.ProblemText(err) != problem(noted)
	for _, pair := range request.Pairs {
		if entry := noted.Keys[pair.Key]; isForeign(whole, entry, pair.Key) {
			askWriter = askWriter || !explains(entry, pair)
		} else {
			m.observe(whole, entry, pair)
		}
	}
	for key := range noted.Keys {
		_, asked := request.URL(key)
		askWriter = askWriter || !asked && err == nil
	}
	if askWriter {
		m.log("want: reconcile the object")
		r := &v1.Result{Want: m.want(whole, annotation.Pair{Key: status.ObjectKey}), ObservedAt: timestamppb.Now()}
		r.Outcome = &v1.Result_Sync{Sync: &v1.Sync{Remove: true}}
		m.queue = append(m.queue, r)
	}
}

// problem returns the message about the annotations in a status.
func problem(s status.Status) string {
	if s.Problem == nil {
		return ""
	}
	return s.Problem.Message
}

// isForeign reports whether somebody else wrote a key that we have never written.
func isForeign(cm *corev1.ConfigMap, entry status.Entry, key string) bool {
	return !entry.HasBody() && ownerOf(cm, key).State == annotation.Foreign
}

// explains reports whether the status says that a key is foreign.
func explains(entry status.Entry, pair annotation.Pair) bool {
	return entry.Error == "KeyExists" && entry.FailingURL() == pair.URL
}

// ownerOf returns the owner of a key. An unreadable record has no owners.
func ownerOf(cm *corev1.ConfigMap, key string) annotation.Ownership {
	owners, _ := annotation.ParseOwners(cm.ManagedFields)
	return owners.Of(key)
}

// observe publishes the want of one pair, if there is one.
func (m *model) observe(cm *corev1.ConfigMap, entry status.Entry, pair annotation.Pair) {
	o, w := ownerOf(cm, pair.Key), m.want(cm, pair)
	holds := entry.HasBody() && entry.URL == pair.URL
	intact := o.State == annotation.Ours || o.Fingerprint == entry.CheckedFingerprint
	w.ReadFirst = o.State == annotation.Unknown
	switch {
	case holds && intact && !entry.Failing() && m.rand.IntN(4) > 0:
		return
	case holds && !intact:
		w.Fingerprint, w.Cause = o.Fingerprint, v1.Cause_CAUSE_DRIFT
		w.ReadFirst = w.GetReadFirst() || o.State == annotation.Foreign
	}
	m.signer.Sign(w)
	m.seq++
	m.log("want %d: %s=%s rv %s fingerprint %q readFirst %v", m.seq, w.GetKey(), w.GetUrl(), w.GetResourceVersion(),
		w.GetFingerprint(), w.GetReadFirst())
	m.wants, m.seqs = append(m.wants, w), append(m.seqs, m.seq)
}

func (m *model) want(cm *corev1.ConfigMap, pair annotation.Pair) *v1.Want {
	return &v1.Want{
		Namespace: modelNamespace, Name: modelName, Key: pair.Key, Url: pair.URL, Uid: string(cm.UID),
		ResourceVersion: cm.ResourceVersion, Status: cm.Annotations[annotation.StatusKey], Epoch: 1,
		Cause: v1.Cause_CAUSE_CHANGED,
	}
}

// fetch fetches one of the wants, often not the newest, sometimes because its timer fired.
func (m *model) fetch(fails bool) {
	if len(m.wants) == 0 {
		return
	}
	n := len(m.wants) - 1 - min(m.rand.IntN(4)*m.rand.IntN(2), len(m.wants)-1)
	w, seq := proto.CloneOf(m.wants[n]), m.seqs[n]
	if m.rand.IntN(3) == 0 {
		m.seq++
		seq = m.seq
		w.Status, w.ReadFirst, w.Cause = "", true, v1.Cause_CAUSE_REFRESH
	}
	m.answer(w, seq, fails)
}

// answer queues the outcome of a fetch.
func (m *model) answer(w *v1.Want, seq uint64, fails bool) {
	r := &v1.Result{Want: w, Sequence: seq, Cause: w.GetCause(), ObservedAt: timestamppb.Now()}
	if fails {
		class := v1.FailureClass_FAILURE_CLASS_TIMEOUT
		if m.rand.IntN(2) == 0 {
			class = v1.FailureClass_FAILURE_CLASS_BAD_STATUS
		}
		r.Outcome = &v1.Result_Failure{Failure: &v1.Failure{Class: class, Attempts: 1, FirstFailedAt: timestamppb.Now()}}
		m.possible[w.GetUid()+" "+failure.Reason(class)] = true
	} else {
		body := m.body(w.GetUrl(), w.GetUid())
		r.Outcome = &v1.Result_Content{Content: &v1.Content{Body: []byte(body), Sha256: hash(body)}}
	}
	m.log("fetched %d: %s=%s failure=%v", seq, w.GetKey(), w.GetUrl(), fails)
	m.queue = append(m.queue, r)
}

func hash(body string) string { return pipeline.Digest(body) }

// write passes some of the queue to the writer.
func (m *model) write() {
	if len(m.queue) == 0 {
		return
	}
	m.rand.Shuffle(len(m.queue), func(i, j int) { m.queue[i], m.queue[j] = m.queue[j], m.queue[i] })
	n := 1 + m.rand.IntN(min(len(m.queue), 4))
	batch := m.queue[:n:n]
	m.batch = batch
	m.queue = append([]*v1.Result(nil), m.queue[n:]...)
	items := make([]plan.Item, n)
	for i, r := range batch {
		items[i] = plan.NewItem(proto.CloneOf(r))
	}
	outcomes := m.applier.Apply(context.Background(), modelRef, items)
	if len(outcomes) != n {
		m.broken("%d outcomes for %d results", len(outcomes), n)
	}
	for i, o := range outcomes {
		m.log("  applied %d %s: %q", batch[i].GetSequence(), batch[i].GetWant().GetKey(), o.Outcome)
		if o.Outcome != "" && o.Outcome != plan.Deferred { // the watcher publishes deferred keys again
			m.done = append(m.done, batch[i])
		} else {
			m.queue = append(m.queue, batch[i])
		}
	}
	<-time.After(time.Second) // so that each failure starts at a different time
}
