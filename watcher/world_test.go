package watcher_test

import (
	"context"
	"encoding/json"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/connrotation"

	"github.com/kv8s/curl-me-that/deploy/testkit/kubetest"
	"github.com/kv8s/curl-me-that/deploy/testkit/natstest"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/proto/annotation"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/signature"
)

// want returns the want of a key, or nil.
func (w *world) want(ctx context.Context, key pipeline.Key) func() *v1.Want {
	return func() *v1.Want {
		want, _, err := w.pipeline.LastWant(ctx, key)
		if err != nil {
			return nil
		}
		return want
	}
}

// url returns the URL in the want of a key.
func (w *world) url(ctx context.Context, key pipeline.Key) func() string {
	return func() string { return w.want(ctx, key)().GetUrl() }
}

// retracted reports whether a key has a tombstone.
func (w *world) retracted(ctx context.Context, key pipeline.Key) func() bool {
	return func() bool {
		want, seq, err := w.pipeline.LastWant(ctx, key)
		return err == nil && want == nil && seq > 0
	}
}

// sequence returns the last sequence of the stream of requests.
func (w *world) sequence() uint64 { return natstest.State(GinkgoTB(), w.js, pipeline.Requests).LastSeq }

// results returns the pending results.
func (w *world) results() (results []*v1.Result) {
	GinkgoHelper()
	for _, m := range natstest.Messages(GinkgoTB(), w.js, pipeline.Results) {
		_, key, err := pipeline.ParseSubject(m.Subject)
		Expect(err).NotTo(HaveOccurred())
		results = append(results, suitetest.Must(pipeline.DecodeResult(key, m.Data)))
	}
	return results
}

// syncs returns the pending requests to sync an object.
func (w *world) syncs() []*v1.Result {
	GinkgoHelper()
	return slices.DeleteFunc(w.results(), func(r *v1.Result) bool { return r.GetSync() == nil })
}

func TestWatcher(t *testing.T) {
	SetDefaultConsistentlyDuration(400 * time.Millisecond)
	SetDefaultConsistentlyPollingInterval(20 * time.Millisecond)
	suitetest.Run(t, "Watcher")
}

var cluster *rest.Config

var _ = BeforeSuite(func() {
	suitetest.ExpectNoLeaks()
	cluster, kube = dialed(kubetest.Config(GinkgoTB()))
})

// kube is an admin client.
var kube *kubernetes.Clientset

// dialed returns a client whose connections are closed at the end.
func dialed(config *rest.Config) (*rest.Config, *kubernetes.Clientset) {
	GinkgoHelper()
	dialer := connrotation.NewDialer((&net.Dialer{}).DialContext)
	own := rest.CopyConfig(config)
	own.Dial = dialer.DialContext
	client := suitetest.Must(kubernetes.NewForConfig(own))
	DeferCleanup(dialer.CloseAll)
	return own, client
}

// w is the world of the current spec.
var w *world

var _ = BeforeEach(func(ctx SpecContext) { w = newWorld(ctx) })

// world has a namespace and a broker for one spec.
type world struct {
	namespace string
	nats      *natstest.Server
	js        jetstream.JetStream
	pipeline  *pipeline.Client
	// signingKey is the file with the watcher's key, and trusted verifies its signatures.
	signingKey string
	trusted    *signature.Verifier
}

func newWorld(ctx context.Context) *world {
	GinkgoHelper()
	server := natstest.Broker(GinkgoTB(), natstest.Options{})
	js := natstest.Connect(GinkgoTB(), server)
	signingKey, keys, err := signature.WriteFiles(GinkgoT().TempDir())
	Expect(err).NotTo(HaveOccurred())
	trusted := suitetest.Must(signature.LoadVerifier(keys))
	return &world{
		namespace: kubetest.Namespace(ctx, GinkgoTB(), kube, "watcher-", nil), nats: server, js: js,
		pipeline: pipeline.NewClient(js), signingKey: signingKey, trusted: trusted,
	}
}

func (w *world) key(name, key string) pipeline.Key {
	return pipeline.Key{Namespace: w.namespace, Name: name, Key: key}
}

func (w *world) maps() corev1client.ConfigMapInterface { return kube.CoreV1().ConfigMaps(w.namespace) }

// somebody is a field manager other than the writer.
const somebody = "somebody"

// create creates a ConfigMap, with the annotation unless value is empty.
func (w *world) create(ctx context.Context, name, value string, more ...func(*corev1.ConfigMap)) *corev1.ConfigMap {
	GinkgoHelper()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.namespace}}
	if value != "" {
		cm.Annotations = map[string]string{annotation.DefaultKey: value}
	}
	for _, change := range more {
		change(cm)
	}
	return suitetest.Must(w.maps().Create(ctx, cm, metav1.CreateOptions{FieldManager: somebody}))
}

type object = map[string]any

// patch applies a merge patch as a field manager.
func (w *world) patch(ctx context.Context, manager, name string, change object) {
	GinkgoHelper()
	data := suitetest.Must(json.Marshal(change))
	suitetest.Must(w.maps().Patch(ctx, name, types.MergePatchType, data, metav1.PatchOptions{FieldManager: manager}))
}

// annotate sets annotations (nil removes one).
func (w *world) annotate(ctx context.Context, name string, annotations object) {
	GinkgoHelper()
	w.patch(ctx, somebody, name, object{"metadata": object{"annotations": annotations}})
}

// ask changes the main annotation of a ConfigMap.
func (w *world) ask(ctx context.Context, name, value string) {
	GinkgoHelper()
	w.annotate(ctx, name, object{annotation.DefaultKey: value})
}

func (w *world) delete(ctx context.Context, name string) {
	GinkgoHelper()
	Expect(w.maps().Delete(ctx, name, metav1.DeleteOptions{})).To(Succeed())
}
