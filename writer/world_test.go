package writer_test

import (
	"context"
	"net/http"
	"regexp"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/spf13/pflag"
	"google.golang.org/protobuf/types/known/timestamppb"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/kv8s/curl-me-that/deploy/testkit/kubetest"
	"github.com/kv8s/curl-me-that/deploy/testkit/natstest"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/proto/annotation"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/process"
	"github.com/kv8s/curl-me-that/proto/signature"
	"github.com/kv8s/curl-me-that/proto/status"
	"github.com/kv8s/curl-me-that/writer"
)

// w is the world of the current spec.
var w *world

var _ = BeforeEach(func(ctx SpecContext) { w = newWorld(ctx) })

// world is one writer with its own broker and namespace.
type world struct {
	*suitetest.Service
	ctx       func() context.Context
	namespace string
	broker    *natstest.Server
	js        jetstream.JetStream
	client    *pipeline.Client
	epoch     int64
	seq       atomic.Uint64

	signer *signature.Signer

	config  writer.Config
	cluster *rest.Config
	calls   *calls
}

// newWorld returns a world without a running writer.
func newWorld(ctx SpecContext) *world {
	GinkgoHelper()
	w := &world{
		ctx: func() context.Context { return context.WithoutCancel(ctx) }, cluster: rest.CopyConfig(cluster), calls: &calls{},
	}
	w.namespace = kubetest.Namespace(ctx, GinkgoTB(), person, "writer-", nil)
	w.broker, w.js, w.epoch = natstest.Ensured(GinkgoTB(), pipeline.Topology{})
	w.client = pipeline.NewClient(w.js)
	w.seq.Store(100)

	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	w.config.BindFlags(flags)
	seed, keys, err := signature.WriteFiles(GinkgoT().TempDir())
	Expect(err).NotTo(HaveOccurred())
	w.signer = suitetest.Must(signature.LoadSigner(seed))
	w.config.TrustedKeys = keys
	w.cluster.Wrap(w.calls.wrap)
	return w
}

// start runs the writer until the end of the spec, or until Stop is called, and waits until it is ready.
func (w *world) start() {
	GinkgoHelper()
	w.calls.reset()
	w.Service = suitetest.Serve("writer", w.broker.Dial(), func(ctx context.Context, rt *process.Runtime) error {
		return writer.Run(ctx, rt, w.config, w.cluster)
	})
	Eventually(w.Health.Ready).Should(BeTrue())
}

// maps is the client of people for the ConfigMaps of the namespace.
func (w *world) maps() corev1client.ConfigMapInterface {
	return person.CoreV1().ConfigMaps(w.namespace)
}

// elsewhere creates a ConfigMap with the key mydata in another namespace. It returns a result for it, and its data.
func (w *world) elsewhere() (*v1.Result, func() map[string]string) {
	GinkgoHelper()
	maps := person.CoreV1().ConfigMaps(kubetest.Namespace(w.ctx(), GinkgoTB(), person, "elsewhere-", nil))
	cm := suitetest.Must(maps.Create(w.ctx(), asking("cm", "mydata="+url), metav1.CreateOptions{}))
	return w.content(w.want(cm, "mydata", url), "body"), func() map[string]string {
		return suitetest.Must(maps.Get(w.ctx(), "cm", metav1.GetOptions{})).Data
	}
}

// create creates a ConfigMap in the namespace, as a person.
func (w *world) create(cm *corev1.ConfigMap) *corev1.ConfigMap {
	GinkgoHelper()
	return suitetest.Must(w.maps().Create(w.ctx(), cm, metav1.CreateOptions{FieldManager: "person"}))
}

// asking returns a ConfigMap that is annotated with pairs.
func asking(name, pairs string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Name: name, Annotations: map[string]string{annotation.DefaultKey: pairs},
	}}
}

func (w *world) get(name string) *corev1.ConfigMap {
	GinkgoHelper()
	return suitetest.Must(w.maps().Get(w.ctx(), name, metav1.GetOptions{}))
}

// edit changes a ConfigMap, as a person.
func (w *world) edit(name string, change func(*corev1.ConfigMap)) *corev1.ConfigMap {
	GinkgoHelper()
	cm := w.get(name)
	change(cm)
	return suitetest.Must(w.maps().Update(w.ctx(), cm, metav1.UpdateOptions{FieldManager: "person"}))
}

// entry returns the status entry of a key.
func entry(cm *corev1.ConfigMap, key string) status.Entry {
	GinkgoHelper()
	return suitetest.Must(status.Parse(cm.Annotations[annotation.StatusKey])).Keys[key]
}

// want returns the watcher's want for a key of an object.
func (w *world) want(cm *corev1.ConfigMap, key, url string) *v1.Want {
	want := &v1.Want{
		Namespace: cm.Namespace, Name: cm.Name, Key: key, Uid: string(cm.UID), ResourceVersion: cm.ResourceVersion,
		Url: url, Epoch: w.epoch, Status: cm.Annotations[annotation.StatusKey], Cause: v1.Cause_CAUSE_NEW,
	}
	w.signer.Sign(want)
	return want
}

// due changes a want as if it came from a fired timer.
func due(want *v1.Want) *v1.Want {
	want.Status, want.ResourceVersion, want.ReadFirst = "", "", true
	return want
}

// readFirst makes the writer read the object before it writes.
func readFirst(want *v1.Want) *v1.Want {
	want.ReadFirst = true
	return want
}

// result returns a result for the next trigger of a want.
func (w *world) result(want *v1.Want) *v1.Result {
	return &v1.Result{
		Want: want, Sequence: w.seq.Add(1), Cause: want.GetCause(), ObservedAt: timestamppb.Now(),
	}
}

func (w *world) content(want *v1.Want, body string) *v1.Result {
	r := w.result(want)
	r.Outcome = &v1.Result_Content{Content: &v1.Content{Body: []byte(body), Sha256: sum(body)}}
	return r
}

// failure returns the result of a fetch with a bad status.
func (w *world) failure(want *v1.Want, code int32) *v1.Result {
	r := w.result(want)
	r.Outcome = &v1.Result_Failure{Failure: &v1.Failure{
		Class: v1.FailureClass_FAILURE_CLASS_BAD_STATUS, StatusCode: code, Host: "data.example.com",
		Attempts: 1, FirstFailedAt: r.GetObservedAt(),
	}}
	return r
}

// reconcile returns the watcher's request to reconcile an object, including removals.
func (w *world) reconcile(cm *corev1.ConfigMap) *v1.Result {
	r := w.result(w.want(cm, status.ObjectKey, ""))
	r.Outcome = &v1.Result_Sync{Sync: &v1.Sync{Remove: true}}
	return r
}

func sum(body string) string { return pipeline.Digest(body) }

func (w *world) publish(results ...*v1.Result) {
	GinkgoHelper()
	for _, r := range results {
		Expect(w.client.PublishResult(w.ctx(), r)).To(Succeed())
	}
}

// apply publishes results and waits until they are acknowledged.
func (w *world) apply(results ...*v1.Result) {
	GinkgoHelper()
	w.publish(results...)
	w.acknowledged()
}

// together publishes results of one object so that all except the first are applied as one batch.
func (w *world) together(first *v1.Result, rest ...*v1.Result) {
	GinkgoHelper()
	begun, release := make(chan struct{}), make(chan struct{})
	block := sync.OnceFunc(func() {
		close(begun)
		<-release
	})
	w.calls.with(func(r *http.Request, next send) (*http.Response, error) {
		if r.Method == http.MethodPatch {
			block()
		}
		return next(r)
	})
	w.publish(first)
	Eventually(begun).Should(BeClosed())
	w.publish(rest...)
	Eventually(w.Value(own + "in_flight_messages")).Should(BeEquivalentTo(1 + len(rest)))
	close(release)
	w.acknowledged()
}

// acknowledged waits until no message is queued or in flight.
func (w *world) acknowledged() {
	GinkgoHelper()
	Eventually(w.waiting).WithPolling(5 * time.Millisecond).Should(BeZero())
}

// await publishes a want again and again, like the watcher, until that has an effect.
func (w *world) await(publish func(), done func() bool) {
	GinkgoHelper()
	Eventually(func() bool {
		publish()
		return done()
	}).WithPolling(100 * time.Millisecond).Should(BeTrue())
}

// waiting returns the number of unacknowledged messages.
func (w *world) waiting() uint64 { return natstest.State(GinkgoTB(), w.js, pipeline.Results).Msgs }

// link matches the link at the end of an Event.
var link = regexp.MustCompile(`\[https://\S+/why-empty\.md#(\d+)\]`)

// events returns the Events of an object as "Type Reason: note", with a short form of the link.
func (w *world) events(cm *corev1.ConfigMap) []string {
	GinkgoHelper()
	var events []string
	list := suitetest.Must(person.EventsV1().Events(w.namespace).List(w.ctx(), metav1.ListOptions{}))
	for _, e := range list.Items {
		if e.Regarding.UID == cm.UID {
			events = append(events, e.Type+" "+e.Reason+": "+link.ReplaceAllString(e.Note, "[why-empty $1]"))
		}
	}
	return events
}
