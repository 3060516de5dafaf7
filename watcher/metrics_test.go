package watcher_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/spf13/pflag"
	"google.golang.org/protobuf/proto"
	"k8s.io/client-go/rest"

	"github.com/kv8s/curl-me-that/deploy/testkit/kubetest"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/process"
	"github.com/kv8s/curl-me-that/proto/status"
	"github.com/kv8s/curl-me-that/watcher"
	"github.com/kv8s/curl-me-that/watcher/internal/leader/lease"
)

// options are the options of a watcher under test.
type options struct {
	config  watcher.Config
	cluster *rest.Config
	at      watcher.Intervals
}

// instance is a running watcher.
type instance struct{ *suitetest.Service }

// ready returns the response of /readyz?verbose.
func (i *instance) ready() string {
	answer := httptest.NewRecorder()
	i.Health.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/readyz?verbose", nil))
	return answer.Body.String()
}

// awaitReady waits until the watcher publishes or is on standby.
func (i *instance) awaitReady() *instance {
	GinkgoHelper()
	Eventually(i.ready).Should(And(
		ContainSubstring("[+]configmaps ok"), ContainSubstring("[+]streams ok"), HaveSuffix("\nok")))
	return i
}

// watch runs a watcher until the spec ends.
func (w *world) watch(change ...func(*options)) *instance {
	GinkgoHelper()
	o := options{cluster: cluster}
	flags := pflag.NewFlagSet("watcher", pflag.ContinueOnError)
	o.config.BindFlags(flags)
	Expect(flags.Parse([]string{"--namespaces", w.namespace})).To(Succeed())
	o.config.Election.Elect = lease.Elect
	o.config.Election.Namespace = w.namespace
	o.config.Election.Lease, o.config.Election.Renew, o.config.Election.Retry = 3*time.Second, 2*time.Second,
		200*time.Millisecond
	o.config.SigningKey = w.signingKey
	for _, c := range change {
		c(&o)
	}
	return &instance{suitetest.Serve("watcher", w.nats.Dial(), func(ctx context.Context, rt *process.Runtime) error {
		return watcher.RunAt(ctx, rt, o.config, o.cluster, o.at)
	})}
}

// move is an action that increases series.
type move struct {
	what   string
	do     func(context.Context)
	series []string
}

const own = "curlmethat_watcher_"

// moves returns actions that change all metrics.
func moves() []move {
	create := func(ctx context.Context) { w.create(ctx, "cm", "k=example.com") }
	edit := func(ctx context.Context) {
		w.wanted(ctx, "cm", "example.com")
		w.ask(ctx, "cm", "k=example.com/other")
	}
	remove := func(ctx context.Context) {
		w.wanted(ctx, "cm", "example.com")
		w.delete(ctx, "cm")
	}
	hold := func(ctx context.Context) { w.satisfied(ctx, "cm", "example.com") }
	reports := func(e status.Entry) func(context.Context) {
		return func(ctx context.Context) {
			create(ctx)
			e.ErrorURL = "https://example.com"
			w.annotate(ctx, "cm", object{
				annotation.StatusKey:                  status.Status{Keys: map[string]status.Entry{"k": e}}.String(),
				"x-kv8s.io/" + annotation.RefreshName: "10m",
			})
		}
	}
	contest := func(ctx context.Context) {
		hold(ctx)
		w.patch(ctx, somebody, "cm", object{"data": object{"k": "another value"}})
	}
	drop := func(ctx context.Context) {
		hold(ctx)
		w.ask(ctx, "cm", "other=example.com")
	}
	dropMany := func(ctx context.Context) {
		w.create(ctx, "cm", "k=example.com")
		data, held := object{}, status.Status{Keys: map[string]status.Entry{}}
		for n := range 60 {
			key := fmt.Sprint("k", n)
			data[key], held.Keys[key] = "body", status.Entry{URL: "https://example.com", SHA256: strings.Repeat("ab", 32)}
		}
		w.patch(ctx, annotation.FieldManager, "cm", object{
			"data": data, "metadata": object{"annotations": object{annotation.StatusKey: held.String()}},
		})
	}
	bad := func(ctx context.Context) { w.create(ctx, "cm", "not correct") }
	suspend := func(ctx context.Context) {
		create(ctx)
		w.annotate(ctx, "cm", object{"x-kv8s.io/" + annotation.SuspendName: "true"})
	}
	drift := func(ctx context.Context) {
		hold(ctx)
		w.patch(ctx, somebody, "cm", object{"data": nil})
	}
	force := func(ctx context.Context) {
		hold(ctx)
		w.annotate(ctx, "cm", object{"x-kv8s.io/" + annotation.NowName: "please"})
	}
	return []move{
		{"a new object", create, []string{
			own + "watched_objects", own + "annotated_objects", own + "wanted_keys", own + `keys{state="pending"}`,
			own + `watch_events_total{kind="added"}`, own + `wants_published_total{cause="new"}`,
			own + "publish_duration_seconds", `workqueue_adds_total{name="watcher"}`,
			`workqueue_queue_duration_seconds{name="watcher"}`, `workqueue_work_duration_seconds{name="watcher"}`,
		}},
		{"a written key", hold, []string{own + `keys{state="ok"}`}},
		{"a failing key", reports(status.Entry{Error: "BadStatus"}), []string{
			own + `keys{state="failing"}`, own + `bad_keys{object_namespace="`,
		}},
		{"a refused key", reports(status.Entry{Error: "WriteFailed"}), []string{own + `keys{state="refused"}`}},
		{"a contested key", contest, []string{own + `keys{state="contested"}`}},
		{"a suspended object", suspend, []string{own + `keys{state="ignored"}`}},
		{
			"a key that fails for long", reports(status.Entry{Error: "BadStatus", Since: time.Now().Add(-time.Hour)}),
			[]string{own + "stale_keys"},
		},
		{"a mistake", bad, []string{
			own + "invalid_objects", own + "syncs_published_total",
			own + `events_emitted_total{reason="InvalidAnnotation"}`, `rest_client_requests_total{code="201",method="POST"}`,
			`rest_client_request_duration_seconds{method="POST"}`,
		}},
		{"an edit", edit, []string{
			own + `watch_events_total{kind="modified"}`, own + `wants_published_total{cause="changed"}`,
		}},
		{"a deletion", remove, []string{
			own + `watch_events_total{kind="deleted"}`, own + `wants_published_total{cause="tombstone"}`,
		}},
		{"a removed key", drift, []string{own + `wants_published_total{cause="drift"}`}},
		{"curl-now", force, []string{own + `wants_published_total{cause="now"}`}},
		{"a removed pair", drop, []string{own + "removals_published_total"}},
		{"many removed pairs", dropMany, []string{
			own + "stopped_removals", own + `events_emitted_total{reason="TooManyRemovals"}`,
		}},
		{"another publisher", overtake, []string{
			own + "publish_conflicts_total", `workqueue_retries_total{name="watcher"}`,
		}},
	}
}

// overtake publishes a want that the watcher does not know.
func overtake(ctx context.Context) {
	key := w.wanted(ctx, "cm", "example.com")
	want, last, err := w.pipeline.LastWant(ctx, key)
	Expect(err).NotTo(HaveOccurred())
	other := proto.CloneOf(want)
	other.Url = "https://example.com/other"
	suitetest.Must(w.pipeline.PublishWant(ctx, other, last))
	w.ask(ctx, "cm", "k=example.com/third")
}

// blocked returns metrics that have a value only while work is blocked.
func blocked() []string {
	return []string{
		`workqueue_depth{name="watcher"}`, `workqueue_unfinished_work_seconds{name="watcher"}`,
		`workqueue_longest_running_processor_seconds{name="watcher"}`,
	}
}

// elected returns metrics that differ between leader and standby.
func elected() []string { return []string{own + "leader", "leader_election_master_status"} }

var _ = Describe("The metrics of a watcher", func() {
	for _, m := range moves() {
		It("change with "+m.what, func(ctx SpecContext) {
			i := w.watch().awaitReady()
			Eventually(i.Value(own + "sessions_total")).Should(BeEquivalentTo(1))
			before := map[string]float64{}
			for _, series := range m.series {
				before[series], _ = i.Value(series)() // 0 if it does not exist yet
			}
			m.do(ctx)
			for _, series := range m.series {
				Eventually(i.Value(series)).Should(BeNumerically(">", before[series]), series)
			}
		})
	}

	It("show blocked work until it is done", func(ctx SpecContext) {
		held, release := context.WithCancel(context.Background())
		DeferCleanup(release)
		i := w.watch(func(o *options) {
			o.config.Workers = 1
			o.cluster = rest.CopyConfig(o.cluster)
			o.cluster.Wrap(func(next http.RoundTripper) http.RoundTripper {
				return kubetest.RoundTripper(func(r *http.Request) (*http.Response, error) {
					if r.Method == http.MethodPost && strings.Contains(r.URL.Path, "/events") {
						<-held.Done()
					}
					return next.RoundTrip(r)
				})
			})
		}).awaitReady()
		w.create(ctx, "bad", "not correct")
		Eventually(i.Value(`workqueue_longest_running_processor_seconds{name="watcher"}`)).Should(BeNumerically(">", 0))
		w.create(ctx, "cm", "k=example.com")
		for _, series := range blocked() {
			Eventually(i.Value(series)).Should(BeNumerically(">", 0), series)
		}
		release()
		for _, series := range blocked() {
			Eventually(i.Value(series)).Should(BeZero(), series)
		}
	})

	It("show the leader, and only the leader exports metrics of the pipeline", func(ctx SpecContext) {
		elect := func(o *options) {
			o.config.Election.Enabled, o.at.Export = true, 20*time.Millisecond
			// The standby does not wait until the Lease expires.
			o.config.Election.Lease, o.config.Election.Renew = time.Minute, 50*time.Second
		}
		leader := w.watch(elect).awaitReady()
		for _, series := range elected() {
			Eventually(leader.Value(series)).Should(BeEquivalentTo(1), series)
		}
		standby := w.watch(elect).awaitReady()
		w.create(ctx, "cm", "k=example.com")
		Eventually(leader.Value(`curlmethat_pipeline_backlog_messages{consumer="fetcher"}`)).Should(BeEquivalentTo(1))
		for _, series := range elected() {
			Expect(standby.Value(series)()).To(BeZero(), series)
		}
		Expect(suitetest.Metrics(standby.Metrics)).NotTo(HaveKey(HavePrefix("curlmethat_pipeline_")))
		leader.Stop()
		Eventually(standby.Value(own + "leader")).Should(BeEquivalentTo(1))
		Eventually(standby.Value(`curlmethat_pipeline_backlog_messages{consumer="fetcher"}`)).Should(BeEquivalentTo(1))
		Expect(suitetest.Metrics(leader.Metrics)).NotTo(HaveKey(HavePrefix("curlmethat_pipeline_")))
	})

	It("show the duration of an audit, and the silence of the watch", func() {
		i := w.watch(audited).awaitReady()
		Eventually(i.Value(own + "audit_duration_seconds")).Should(BeNumerically(">", 0))
		Eventually(i.Value(own + "watch_silence_seconds")).Should(BeNumerically(">", 0.3))
	})

	It("all have a spec", func() {
		series := append(blocked(), elected()...)
		series = append(series, own+"audit_duration_seconds", own+"watch_silence_seconds",
			// See packages audit, reconcile and session.
			own+"lost_keys_total", own+"events_over_budget_total", own+"sessions_total", own+"purges_total",
			own+"out_of_scope_wants")
		for _, m := range moves() {
			series = append(series, m.series...)
		}
		definitions, _ := watcher.Metrics() // package exporter tests the others
		Expect(suitetest.UnnamedMetrics(definitions, series)).To(BeEmpty())
	})

	It("follow the conventions and their definitions", func(ctx SpecContext) {
		i := w.watch(func(o *options) { o.config.Election.Enabled = true }).awaitReady()
		w.satisfied(ctx, "cm", "example.com")
		w.create(ctx, "bad", "not correct")
		Eventually(i.Value(own + "events_emitted_total")).Should(BeEquivalentTo(1))
		Eventually(i.Value("curlmethat_pipeline_up")).Should(BeEquivalentTo(1))
		definitions, pipeline := watcher.Metrics()
		definitions = slices.Concat(process.Metrics("watcher"), definitions, pipeline)
		Expect(suitetest.MetricProblems(i.Metrics, definitions)).To(BeEmpty())
	})
})
