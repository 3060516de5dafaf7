package writer_test

import (
	"net/http"
	"sync"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/kv8s/curl-me-that/deploy/testkit/kubetest"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/writer"
)

func TestWriter(t *testing.T) { suitetest.Run(t, "writer") }

var (
	// cluster is the API server of all specs. Each spec has its own namespace.
	cluster *rest.Config
	// person is the client of people and controllers other than the writer.
	person *kubernetes.Clientset
)

var _ = BeforeSuite(func() {
	klog.SetOutput(GinkgoWriter)
	klog.LogToStderr(false)
	suitetest.ExpectNoLeaks()
	cluster = kubetest.Config(GinkgoTB())
	shared := must(rest.HTTPClientFor(cluster))
	person = must(kubernetes.NewForConfigAndClient(cluster, shared))
	DeferCleanup(func() { utilnet.CloseIdleConnectionsFor(shared.Transport) })
})

// must returns the value of a call that must succeed.
func must[T any](value T, err error) T {
	GinkgoHelper()
	Expect(err).NotTo(HaveOccurred())
	return value
}

// Each mistake gets one sentence with the flag.
func TestCommandRefuses(t *testing.T) {
	for name, tt := range map[string]struct {
		args []string
		want string
	}{
		"concurrency": {[]string{"--concurrency=0"}, "--concurrency: 0 is not between 1 and 1024"},
		"writes":      {[]string{"--namespace-writes=-1"}, "--namespace-writes: -1 is negative"},
		"events":      {[]string{"--namespace-events=-1"}, "--namespace-events: -1 is negative"},
		"write bytes": {[]string{"--namespace-write-bytes=-1"}, "--namespace-write-bytes: -1 is negative"},
		"namespace": {[]string{"--protected-namespaces=Kube_System"}, `--protected-namespaces: "Kube_System" is not ` +
			`the name of a namespace`},
		"selector": {[]string{"--selector=a in b"}, `--selector: "a in b" is not a label selector such as ` +
			`reconciler!=ignore`},
		"scheme":        {[]string{"--default-scheme=ftp"}, `--default-scheme: "ftp" is neither http nor https`},
		"annotation":    {[]string{"--annotation-keys=plain"}, `--annotation-keys: "plain" has no prefix`},
		"no annotation": {[]string{"--annotation-keys="}, "--annotation-keys: name at least one"},
		"keys": {[]string{"--trusted-keys=/dev/null"}, "--trusted-keys: read /dev/null: it must hold one to 2 " +
			"NKey user public keys"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := writer.Command()
			cmd.SetArgs(tt.args)
			cmd.SilenceErrors, cmd.SilenceUsage = true, true
			NewWithT(t).Expect(cmd.ExecuteContext(t.Context())).
				To(MatchError(And(ContainSubstring(tt.want), Not(ContainSubstring("\n")))))
		})
	}
}

const url = "https://data.example.com/greeting?token=secret"

var _ = Describe("A fetched body", func() {
	var w *world

	BeforeEach(func(ctx SpecContext) {
		w = newWorld(ctx)
		w.start()
	})

	It("costs one request, and a read only if the object is not known or has changed", func() {
		cm := w.create(asking("cm", "a="+url+" b="+url))
		w.apply(w.content(w.want(cm, "a", url), "hello there"))
		got := w.get("cm")
		Expect(got.Data).To(Equal(map[string]string{"a": "hello there"}))
		Expect(entry(got, "a")).To(And(
			HaveField("URL", url), HaveField("SHA256", sum("hello there")), HaveField("Size", int64(11)),
			HaveField("Error", ""), HaveField("Fence.Seq", uint64(101)),
		))
		Expect(w.events(cm)).To(BeEmpty())
		w.apply(w.content(w.want(cm, "b", url), "B"))
		Expect(w.calls.all()).To(Equal([]string{"PATCH configmaps", "PATCH configmaps"}))

		By("after a change by somebody else")
		w.calls.reset()
		w.edit("cm", func(cm *corev1.ConfigMap) { cm.Data["theirs"] = "value" })
		w.apply(w.content(w.want(cm, "b", url), "C"))
		Expect(w.get("cm").Data).To(Equal(map[string]string{"a": "hello there", "b": "C", "theirs": "value"}))
		Expect(w.calls.all()).To(Equal([]string{"PATCH configmaps", "GET configmaps", "PATCH configmaps"}))

		By("for a timer, whose message does not show the object")
		w.calls.reset()
		other := w.create(asking("other", "mydata="+url))
		w.apply(w.content(due(w.want(other, "mydata", url)), "hello there"))
		Expect(w.get("other").Data).To(Equal(map[string]string{"mydata": "hello there"}))
		Expect(w.calls.all()).To(Equal([]string{"GET configmaps", "PATCH configmaps"}))
	})

	It("stays when its pair is removed with --prune=false", func() {
		w.stop()
		w.config.Prune = false
		w.start()
		cm := w.create(asking("cm", "a="+url+" b="+url))
		w.apply(w.content(w.want(cm, "a", url), "A"), w.content(w.want(cm, "b", url), "B"))
		w.apply(w.reconcile(w.edit("cm", func(cm *corev1.ConfigMap) { cm.Annotations[annotation.DefaultKey] = "a=" + url })))
		got := w.get("cm")
		Expect(got.Data).To(Equal(map[string]string{"a": "A", "b": "B"}))
		Expect(entry(got, "b")).To(BeZero())
	})
})

var _ = Describe("An object without a record of owners", func() {
	// unrecorded returns an object that was created without any field and annotated later. The API
	// server has no record of its owners.
	unrecorded := func(w *world, data string) *corev1.ConfigMap {
		GinkgoHelper()
		w.create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "bare"}})
		cm := must(w.kube.CoreV1().ConfigMaps(w.namespace).Patch(w.ctx(), "bare", types.MergePatchType,
			[]byte(`{"metadata":{"annotations":{"`+annotation.DefaultKey+`":"mydata=`+url+`"}},"data":`+data+`}`),
			metav1.PatchOptions{}))
		Expect(cm.ManagedFields).To(BeEmpty())
		return cm
	}

	It("gets one with the first body, so that later changes of the key are visible", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.start()
		cm := unrecorded(w, `{"theirs":"value"}`)
		w.apply(w.content(readFirst(w.want(cm, "mydata", url)), "hello there"))

		got := w.get("bare")
		Expect(got.Data).To(Equal(map[string]string{"mydata": "hello there", "theirs": "value"}))
		Expect(ownerOf(got, "mydata").State).To(Equal(annotation.Ours))
		Expect(ownerOf(got, "theirs").State).To(Equal(annotation.Foreign))

		w.apply(w.content(w.want(got, "mydata", url), "\xffbinary"))
		got = w.get("bare")
		Expect(got.Data).To(Equal(map[string]string{"theirs": "value"}))
		Expect(got.BinaryData).To(Equal(map[string][]byte{"mydata": []byte("\xffbinary")}))
	})

	It("is not created again if it is deleted", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.start()
		cm := unrecorded(w, `{}`)
		want := readFirst(w.want(cm, "mydata", url))
		once := sync.OnceFunc(func() {
			defer GinkgoRecover()
			Expect(w.kube.CoreV1().ConfigMaps(w.namespace).Delete(w.ctx(), "bare", metav1.DeleteOptions{})).To(Succeed())
		})
		w.calls.with(func(r *http.Request, next send) (*http.Response, error) {
			if r.Method == http.MethodPatch {
				once()
			}
			return next(r)
		})
		w.apply(w.content(want, "hello there"))
		list := must(w.kube.CoreV1().ConfigMaps(w.namespace).List(w.ctx(),
			metav1.ListOptions{FieldSelector: "metadata.name=bare"}))
		Expect(list.Items).To(BeEmpty())
	})
})

// ownerOf returns the recorded owner of a key.
func ownerOf(cm *corev1.ConfigMap, key string) annotation.Ownership {
	GinkgoHelper()
	owners := must(annotation.ParseOwners(cm.ManagedFields))
	return owners.Of(key)
}
