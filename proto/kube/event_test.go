package kube_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"

	"github.com/kv8s/curl-me-that/deploy/testkit/kubetest"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/proto/kube"
)

func TestKube(t *testing.T) { suitetest.Run(t, "kube") }

var _ = Describe("Events", func() {
	var (
		cluster   *kubernetes.Clientset
		namespace string
	)
	BeforeEach(func(ctx SpecContext) {
		config := suitetest.Must((&kube.Options{}).Config("spec"))
		Expect(config.QPS).To(BeNumerically("<", 0))
		cluster = kubernetes.NewForConfigOrDie(config)
		namespace = kubetest.Namespace(ctx, GinkgoTB(), cluster, "events-", nil)
	})

	It("are written once per change of state, by any number of processes", func(ctx SpecContext) {
		event := kube.Event{
			Namespace: namespace, Name: strings.Repeat("a", 229) + ".bb", UID: "uid", Warning: true,
			Reason: "KeyExists", Action: "Skip", Note: strings.Repeat("ü", 1000), Occurrence: "one",
		}
		first := kube.NewRecorder(cluster.CoreV1(), "first", clock.RealClock{}, kube.EventBudget{})
		second := kube.NewRecorder(cluster.CoreV1(), "second", clock.RealClock{}, kube.EventBudget{})
		for _, r := range []*kube.Recorder{first, second, first} {
			Expect(r.Record(ctx, event)).Error().NotTo(HaveOccurred())
		}
		Expect(first.Record(ctx, event)).To(BeFalse(), "the request is saved")
		other := event
		other.Namespace = "other"
		Expect(first.Record(ctx, other)).To(BeTrue(), "an Event of the same name in another namespace")
		Expect(notes(ctx, cluster, namespace)).To(ConsistOf(strings.Repeat("ü", 512)))
		event.Occurrence, event.Note = "another", "short"
		Expect(second.Record(ctx, event)).Error().NotTo(HaveOccurred())
		Expect(notes(ctx, cluster, namespace)).To(ConsistOf(strings.Repeat("ü", 512), "short"))
	})

	It("count each observation once in their series, but never touch a foreign Event", func(ctx SpecContext) {
		now := time.Now()
		first := kube.NewRecorder(cluster.CoreV1(), "first", testclock.NewFakePassiveClock(now), kube.EventBudget{})
		second := kube.NewRecorder(cluster.CoreV1(), "second", clock.RealClock{}, kube.EventBudget{})
		event := kube.Event{
			Namespace: namespace, Name: "map", UID: "uid", Warning: true,
			Reason: "BadStatus", Action: "Fetch", Note: "example.com responded with 404", Occurrence: "one", Again: now,
		}
		read := func() corev1.Event {
			GinkgoHelper()
			list := suitetest.Must(cluster.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{}))
			Expect(list.Items).To(HaveLen(1))
			return list.Items[0]
		}
		Expect(first.Record(ctx, event)).Error().NotTo(HaveOccurred())
		Expect(read().Series).To(BeNil(), "it was observed once")
		Expect(read().Count).To(BeEquivalentTo(1))
		for hour := range 3 {
			event.Again = now.Add(time.Duration(hour) * time.Hour)
			event.Note = fmt.Sprintf("example.com responded with 404 in hour %d", hour)
			for _, r := range []*kube.Recorder{first, second, first} { // delivered again, also to another replica
				Expect(r.Record(ctx, event)).Error().NotTo(HaveOccurred())
			}
		}
		Expect(read().Series.Count).To(BeEquivalentTo(3))
		Expect(read().Message).To(Equal(event.Note))
		Expect(read().Series.LastObservedTime.Time).To(BeTemporally("~", event.Again, time.Millisecond))
		Expect(read().Count).To(BeEquivalentTo(3))
		Expect(read().LastTimestamp.Time).To(BeTemporally("~", event.Again, time.Second), "kubectl sorts Events by it")

		theirs := read()
		theirs.ObjectMeta = metav1.ObjectMeta{Namespace: theirs.Namespace, Name: theirs.Name}
		theirs.Series, theirs.ReportingController = nil, "somebody.example/else"
		Expect(cluster.CoreV1().Events(namespace).Delete(ctx, theirs.Name, metav1.DeleteOptions{})).To(Succeed())
		suitetest.Must(cluster.CoreV1().Events(namespace).Create(ctx, &theirs, metav1.CreateOptions{}))
		event.Again = now.Add(24 * time.Hour)
		Expect(first.Record(ctx, event)).Error().NotTo(HaveOccurred())
		Expect(read().Series).To(BeNil(), "the Event of that name is foreign")
	})

	It("are dropped if their namespace is gone", func(ctx SpecContext) {
		recorder := kube.NewRecorder(cluster.CoreV1(), "spec", clock.RealClock{}, kube.EventBudget{})
		Expect(recorder.Record(ctx, kube.Event{
			Namespace: "events-gone", Name: "x", UID: "u", Reason: "Timeout",
			Action: "Fetch", Note: "n",
		})).Error().NotTo(HaveOccurred())
	})
})

func notes(ctx context.Context, cluster kubernetes.Interface, namespace string) []string {
	GinkgoHelper()
	list := suitetest.Must(cluster.EventsV1().Events(namespace).List(ctx, metav1.ListOptions{}))
	var out []string
	for _, e := range list.Items {
		out = append(out, e.Note)
	}
	return out
}

var _ = Describe("a kubeconfig", func() {
	It("is named in one sentence if it cannot be read", func() {
		_, err := (&kube.Options{Kubeconfig: "/nowhere"}).Config("spec")
		Expect(err).To(MatchError("read kubeconfig /nowhere: stat /nowhere: no such file or directory"))
		file := GinkgoT().TempDir() + "/config"
		Expect(os.WriteFile(file, []byte("not: [a config"), 0o600)).To(Succeed())
		_, err = (&kube.Options{Kubeconfig: file}).Config("spec")
		Expect(err).To(MatchError(HavePrefix("read kubeconfig " + file)))
		Expect(err.Error()).NotTo(ContainSubstring("\n"))
	})

	It("is required outside of a pod", func() {
		GinkgoT().Setenv("KUBECONFIG", "")
		Expect((&kube.Options{}).Config("spec")).Error().
			To(MatchError("no cluster: set --kubeconfig or KUBECONFIG, or run in a pod with a service account"))
	})
})
