package writer_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
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
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/process"
	"github.com/kv8s/curl-me-that/proto/process/metric"
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
		w.config.Planner.Prune = false
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

// value returns the sum of the series with this prefix.
func (w *world) value(series string) func() (float64, error) {
	return func() (float64, error) { return suitetest.MetricValue(w.metrics, series) }
}

const own = "curlmethat_writer_"

// moved are the series that the work of a writer increases.
func moved() []string {
	return []string{
		own + `results_total{outcome="written"}`, own + `patches_total{outcome="ok"}`,
		own + `patches_total{outcome="conflict"}`, own + `patches_total{outcome="unavailable"}`,
		own + "conflicts_exhausted_total", own + `reads_total{kind="metadata"}`,
		own + `messages_total{outcome="ack"}`, own + `messages_total{outcome="retry"}`,
		own + `messages_total{outcome="dead_letter"}`, own + `events_emitted_total{reason="BadStatus"}`,
		own + "batch_messages", own + "apply_duration_seconds", own + "result_age_seconds",
		`rest_client_requests_total{code="200",method="PATCH"}`, `rest_client_request_duration_seconds{method="PATCH"}`,
	}
}

// shown are the metrics that others move or read.
func shown() []string {
	return []string{
		own + "api_server_available", own + "in_flight_messages",
		own + "in_flight_limit_messages", own + "denied_namespaces", own + "annotation_to_data_seconds",
		own + "over_budget_total", own + "events_over_budget_total", own + "versions_total",
	}
}

func definitions() []metric.Definition { return append(process.Metrics("writer"), writer.Metrics()...) }

var _ = Describe("The metrics of a writer", func() {
	It("move with its work", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.start()
		before := map[string]float64{}
		for _, series := range moved() {
			before[series] = must(w.value(series)())
		}
		edit := func(value int) {
			w.edit("cm", func(cm *corev1.ConfigMap) { cm.Labels = map[string]string{"edit": fmt.Sprint(value)} })
		}
		cm := w.create(asking("cm", "mydata="+url+" other="+url))
		edit(0)
		must(w.js.Publish(ctx, "curl.result.content.ns.cm.key", []byte("garbage")))
		w.apply(w.content(w.want(cm, "mydata", url), "body"), w.failure(w.want(cm, "other", url), 500))

		edits := 0
		w.calls.with(func(r *http.Request, next send) (*http.Response, error) {
			if r.Method == http.MethodPatch && edits < 20 {
				edits++
				edit(edits)
			}
			return next(r)
		})
		w.apply(w.content(w.want(cm, "mydata", url), "another body"))

		w.calls.unreachable()
		Expect(w.value(own + "api_server_available")()).To(BeEquivalentTo(1))
		w.publish(w.content(w.want(cm, "mydata", url), "a"), w.failure(w.want(cm, "mydata", url), 500))
		Eventually(w.value(own + "api_server_available")).Should(BeZero())
		for series, value := range before {
			Eventually(w.value(series)).Should(BeNumerically(">", value), series)
		}
	})

	It("show the number of namespaces without a permission", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.cluster.Impersonate = rest.ImpersonationConfig{UserName: "nobody", Groups: []string{"system:authenticated"}}
		w.start()
		Expect(w.value(own + "denied_namespaces")()).To(BeZero())
		cm := w.create(asking("cm", "mydata="+url))
		w.publish(w.content(w.want(cm, "mydata", url), "body"))
		Eventually(w.value(own + "denied_namespaces")).Should(BeEquivalentTo(1))
		Expect(w.value(own + `patches_total{outcome="forbidden"}`)()).To(BeNumerically(">", 0))
	})

	It("measure the time from annotation to data once, at the first response", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.start()
		cm := w.create(asking("cm", "mydata="+url))
		want := w.want(cm, "mydata", url)
		want.AskedAt = timestamppb.Now()
		w.apply(w.failure(want, 500))
		Expect(w.value(own+"annotation_to_data_seconds")()).To(BeZero(), "a failure has no data")
		w.apply(w.content(due(want), "body"))
		Expect(w.value(own + "annotation_to_data_seconds")()).To(BeEquivalentTo(1))
		again := w.content(due(want), "other body")
		again.Answered = true
		w.apply(again)
		Expect(w.get("cm").Data).To(HaveKeyWithValue("mydata", "other body"))
		Expect(w.value(own+"annotation_to_data_seconds")()).To(BeEquivalentTo(1), "nobody waits for a refresh")
	})

	It("each have a spec", func() {
		Expect(suitetest.UnnamedMetrics(writer.Metrics(), append(shown(), moved()...))).To(BeEmpty())
	})

	It("follow the conventions and their definitions, and show a setting", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.start()
		Expect(w.value(own + "in_flight_limit_messages")()).To(BeEquivalentTo(256))
		Expect(w.value(`curlmethat_build_info{component="writer"`)()).To(BeEquivalentTo(1))
		cm := w.create(asking("cm", "mydata="+url+" other="+url))
		w.apply(w.content(w.want(cm, "mydata", url), "body"), w.failure(w.want(cm, "other", url), 500))
		Expect(suitetest.MetricProblems(w.metrics, definitions())).To(BeEmpty())
	})
})

var _ = Describe("The history", func() {
	var w *world
	key := func() pipeline.Key { return pipeline.Key{Namespace: w.namespace, Name: "cm", Key: "mydata"} }
	// versions returns the versions of the key, newest first.
	versions := func() (list []string) {
		GinkgoHelper()
		for _, v := range must(w.client.Versions(w.ctx(), key())) {
			list = append(list, fmt.Sprint(v.GetSha256(), v.GetAvailable()))
		}
		return list
	}
	write := func(bodies ...string) {
		GinkgoHelper()
		for _, body := range bodies {
			w.apply(w.content(readFirst(w.want(w.get("cm"), "mydata", url)), body))
		}
	}
	pin := func(body string, more ...string) *corev1.ConfigMap {
		GinkgoHelper()
		return w.edit("cm", func(cm *corev1.ConfigMap) {
			cm.Annotations["x-kv8s.io/curl-sha256"] = "mydata=" + sum(body)
			for _, interval := range more {
				cm.Annotations["x-kv8s.io/curl-refresh"] = interval
			}
		})
	}
	offer := func(body string) {
		GinkgoHelper()
		want := readFirst(w.want(w.get("cm"), "mydata", url))
		want.Sha256, want.Refresh = sum("one"), durationpb.New(time.Hour)
		w.signer.Sign(want)
		w.apply(w.content(want, body))
	}

	BeforeEach(func(ctx SpecContext) {
		w = newWorld(ctx)
		must(pipeline.Ensure(ctx, w.js, pipeline.Topology{HistoryBytes: 16 << 20}))
		w.start()
		w.create(asking("cm", "mydata="+url))
	})

	It("has the versions of a key, and gives it the one that a pin names, without a fetch", func() {
		write("one", "two", "three")
		Eventually(versions).Should(Equal([]string{sum("three") + "false", sum("two") + "false", sum("one") + "false"}))
		cm := pin("one")
		w.calls.reset()
		w.apply(w.reconcile(cm))
		Expect(w.get("cm").Data).To(HaveKeyWithValue("mydata", "one"))
		Expect(w.calls.all()).To(ContainElement("PATCH configmaps"))
		Expect(entry(w.get("cm"), "mydata")).To(And(HaveField("SHA256", sum("one")), HaveField("URL", "")))
		Expect(w.events(cm)).To(ConsistOf(ContainSubstring("Normal Pinned: key mydata has the content of curl-sha256 again")))
	})

	It("reports other content of a pinned key with an interval once, and keeps it for the approval", func() {
		write("one")
		cm := pin("one", "1h")
		for range 3 {
			offer("two")
		}
		Expect(w.get("cm").Data).To(HaveKeyWithValue("mydata", "one"))
		Expect(entry(w.get("cm"), "mydata")).To(And(
			HaveField("SHA256", sum("one")), HaveField("Available", sum("two")), HaveField("Error", "")))
		Expect(w.events(cm)).To(ConsistOf("Normal UpdateAvailable: data.example.com has other content (sha256 " + sum("two") +
			"); key mydata keeps its last good value until curl-sha256 names that digest"))
		Eventually(versions).Should(Equal([]string{sum("two") + "true", sum("one") + "false"}))

		w.apply(w.reconcile(pin("two")))
		Expect(w.get("cm").Data).To(HaveKeyWithValue("mydata", "two"))
		Expect(entry(w.get("cm"), "mydata").Available).To(BeEmpty())
	})

	It("writes nothing during 1,000 updates of a pinned key, and reports each content once", func() {
		write("one")
		cm := pin("one", "1h")
		offered := map[string]bool{}
		for range 1000 {
			body := fmt.Sprint("update ", rand.IntN(60))
			offered[body] = true
			offer(body)
			Expect(w.get("cm").Data).To(HaveKeyWithValue("mydata", "one"))
		}
		Expect(w.events(cm)).To(HaveLen(len(offered)))
	})

	DescribeTable("does not write a body that lacks the pinned digest", func(forged string) {
		write("two")
		if forged != "" {
			must(w.js.PublishMsg(w.ctx(), &nats.Msg{
				Subject: pipeline.BodySubject(w.namespace, sum("one")), Data: []byte(forged),
			}))
		}
		w.apply(w.reconcile(pin("one")))
		Expect(w.get("cm").Data).To(HaveKeyWithValue("mydata", "two"))
		Expect(entry(w.get("cm"), "mydata").SHA256).To(Equal(sum("two")))
	},
		Entry("if it is forged", "forged"),
		Entry("if the history lacks it", ""),
	)

	DescribeTable("leaves a pinned key untouched, and keys are filled,", func(disturb func(jetstream.Stream)) {
		write("one", "two")
		Eventually(versions).Should(HaveLen(2))
		cm := pin("two")
		disturb(must(w.js.Stream(w.ctx(), pipeline.History)))
		w.calls.reset()
		w.apply(w.reconcile(cm))
		Expect(w.calls.all()).NotTo(ContainElement("PATCH configmaps"))
		Expect(w.get("cm").Data).To(HaveKeyWithValue("mydata", "two"))
		w.apply(w.content(readFirst(w.want(w.create(asking("other", "mydata="+url)), "mydata", url)), "other body"))
		Expect(w.get("other").Data).To(HaveKeyWithValue("mydata", "other body"))
		w.apply(w.reconcile(pin("three")))
		Expect(w.get("cm").Data).To(HaveKeyWithValue("mydata", "two"))
	},
		Entry("after its stream is lost", func(jetstream.Stream) {
			Expect(w.js.DeleteStream(w.ctx(), pipeline.History)).To(Succeed())
		}),
		Entry("after it is wiped", func(s jetstream.Stream) { Expect(s.Purge(w.ctx())).To(Succeed()) }),
		Entry("after it is restored from a backup without the held body", func(s jetstream.Stream) {
			first := must(s.GetLastMsgForSubject(w.ctx(), pipeline.BodySubject(w.namespace, sum("two")))).Sequence
			for n := first; n <= s.CachedInfo().State.LastSeq; n++ {
				Expect(s.DeleteMsg(w.ctx(), n)).To(Succeed())
			}
		}),
		Entry("while it is full", func(s jetstream.Stream) {
			config := s.CachedInfo().Config
			config.Discard, config.MaxMsgs = jetstream.DiscardNew, 1
			must(w.js.UpdateStream(w.ctx(), config))
		}),
	)
})

var _ = Describe("A version", func() {
	keep := func(ctx SpecContext, change func(*world), secret bool) *world {
		GinkgoHelper()
		w := newWorld(ctx)
		must(pipeline.Ensure(ctx, w.js, pipeline.Topology{HistoryBytes: 16 << 20}))
		change(w)
		w.start()
		cm := w.create(asking("cm", "a="+url+" b="+url))
		for _, key := range []string{"a", "b"} {
			r := w.content(readFirst(w.want(cm, key, url)), key+" body")
			r.GetContent().Credential = secret
			w.apply(r)
		}
		Expect(w.get("cm").Data).To(HaveLen(2))
		return w
	}
	kept := func(w *world) func() (uint64, error) {
		return func() (uint64, error) {
			stream, err := w.js.Stream(w.ctx(), pipeline.History)
			if err != nil {
				return 0, err
			}
			return stream.CachedInfo().State.Msgs, nil
		}
	}

	It("that was fetched with a credential is kept only if the operator says so", func(ctx SpecContext) {
		w := keep(ctx, func(*world) {}, true)
		Expect(w.value(own + `versions_total{outcome="credential"}`)()).To(BeEquivalentTo(2))
		Expect(kept(w)()).To(BeZero())
		Eventually(kept(keep(ctx, func(w *world) { w.config.History.Credentials = true }, true))).Should(BeEquivalentTo(4))
	})

	It("over the share of its namespace is not kept", func(ctx SpecContext) {
		w := keep(ctx, func(w *world) { w.config.History.Bytes.Burst = 7 }, false)
		Eventually(kept(w)).Should(BeEquivalentTo(2))
		Expect(w.value(own + `versions_total{outcome="over_share"}`)()).To(BeEquivalentTo(1))
	})

	It("has the URL with a mark instead of its query", func(ctx SpecContext) {
		w := keep(ctx, func(*world) {}, false)
		var list []*v1.Version
		Eventually(func() ([]*v1.Version, error) {
			var err error
			list, err = w.client.Versions(ctx, pipeline.Key{Namespace: w.namespace, Name: "cm", Key: "a"})
			return list, err
		}).Should(HaveLen(1))
		Expect(list[0].GetUrl()).To(Equal("https://data.example.com/greeting?…"))
		Expect(list[0].GetSize()).To(BeEquivalentTo(len("a body")))
	})
})
