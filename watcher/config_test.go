package watcher_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/spf13/pflag"
	"google.golang.org/protobuf/proto"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/kv8s/curl-me-that/deploy/testkit/kubetest"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/proto/annotation"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/process"
	"github.com/kv8s/curl-me-that/proto/status"
	"github.com/kv8s/curl-me-that/watcher"
	"github.com/kv8s/curl-me-that/watcher/internal/leader/lease"
	"github.com/kv8s/curl-me-that/watcher/internal/quota"
)

func TestInvalidConfig(t *testing.T) {
	t.Parallel()
	const durations = "--leader-elect-lease-duration must be longer than --leader-elect-renew-deadline, " +
		"and that at least 1.2 times --leader-elect-retry-period"
	check := func(flag, sentence string) {
		t.Helper()
		config := parse(t, "--leader-elect", flag)
		NewWithT(t).Expect(config.Validate()).To(MatchError(sentence), flag)
	}
	check("--namespaces=Upper", `--namespaces: "Upper" is not the name of a namespace`)
	check("--namespaces=a,,b", `--namespaces: "" is not the name of a namespace`)
	check("--namespaces=kube-system",
		`--namespaces: "kube-system" is protected. To watch it, remove it from --protected-namespaces`)
	check("--protected-namespaces=a b", `--protected-namespaces: "a b" is not the name of a namespace`)
	check("--selector=a in b", `--selector: "a in b" is not a label selector such as reconciler!=ignore`)
	check("--annotation-keys=",
		`--annotation-keys: name at least one, such as x-kv8s.io/curl-me-that`)
	check("--annotation-keys=plain",
		`--annotation-keys: "plain" has no prefix; write prefix/name`)
	check("--default-scheme=ftp",
		`--default-scheme: "ftp" is neither http nor https`)
	check("--min-refresh=-1s",
		`--min-refresh: -1s is not between 0 and 8760h0m0s`)
	check("--coalesce=-1s", `--coalesce: the duration is negative`)
	check("--audit-interval=999ms", `--audit-interval: 999ms is shorter than a second`)
	check("--manage-streams=yes", `--manage-streams: "yes" is not update, create or off`)
	check("--max-removals=-1", `--max-removals: -1 is negative`)
	check("--max-removals-percent=101", `--max-removals-percent: 101 is not between 0 and 100`)
	check("--namespace-events=-1", `--namespace-events: -1 is negative`)
	check("--namespace-keys=-1", `--namespace-keys: -1 is negative`)
	check("--namespace-refreshes=-1", `--namespace-refreshes: -1 is negative`)
	check("--workers=0", `--workers: 0 is less than 1`)
	check("--signing-key=/dev/null", `--signing-key: read /dev/null: it holds no NKey user seed`)
	check("--stream-replicas=2", `--stream-replicas: 2 must be 0, 1, 3 or 5`)
	check("--max-results-bytes=1000", `--max-results-bytes: 1000 is less than 16 MiB`)
	check("--max-failures-bytes=-1", `--max-failures-bytes: -1 is less than 1 MiB`)
	check("--failures-max-age=1m", `--failures-max-age: 1m0s is shorter than an hour`)
	check("--leader-elect-namespace=UPPER", `--leader-elect-namespace: "UPPER" is not the name of a namespace`)
	check("--leader-elect-name=a_b", `--leader-elect-name: "a_b" is not the name of a Lease`)
	check("--leader-elect-lease-duration=999ms", `--leader-elect-lease-duration: 999ms is shorter than a second`)
	check("--leader-elect-lease-duration=10s", durations)
	check("--leader-elect-retry-period=9s", durations)
}

func TestValidConfig(t *testing.T) {
	t.Parallel()
	for _, flags := range [][]string{
		{},
		{"--namespaces=a,b", "--selector="},
		{"--namespaces=kube-system", "--protected-namespaces="},
		{"--annotation-keys=example.com/fetch", "--default-scheme=http", "--min-refresh=0"},
		{"--coalesce=0", "--audit-interval=1s", "--workers=1"},
		{"--leader-elect-lease-duration=1ms"}, // no election, no Lease
	} {
		config := parse(t, flags...)
		NewWithT(t).Expect(config.Validate()).To(Succeed(), "%v", flags)
	}
}

// parse returns the configuration for flags.
func parse(t *testing.T, flags ...string) watcher.Config {
	t.Helper()
	var c watcher.Config
	set := pflag.NewFlagSet("watcher", pflag.ContinueOnError)
	c.BindFlags(set)
	NewWithT(t).Expect(set.Parse(flags)).To(Succeed())
	return c
}

// elsewhere returns the same world with another namespace.
func (w *world) elsewhere(ctx context.Context) *world {
	GinkgoHelper()
	other := *w
	other.namespace = kubetest.Namespace(ctx, GinkgoTB(), kube, "watcher-", nil)
	return &other
}

var _ = Describe("A watcher that no longer watches a namespace", func() {
	var here, there *world

	BeforeEach(func(ctx SpecContext) {
		here = newWorld(ctx)
		there = here.elsewhere(ctx)
	})

	elected := func(name string) func(*options) {
		return func(o *options) { o.config.Election.Enabled, o.config.Election.Name = name != "", name }
	}
	watching := func(worlds ...*world) func(*options) {
		return func(o *options) {
			o.config.Namespaces = nil
			for _, w := range worlds {
				o.config.Namespaces = append(o.config.Namespaces, w.namespace)
			}
		}
	}

	It("retracts its wants of that namespace, and removes no data", func(ctx SpecContext) {
		before := here.watch(elected("ours"), watching(here, there))
		here.satisfied(ctx, "cm", "example.com")
		there.satisfied(ctx, "cm", "example.com")
		before.stop()
		sequence := here.sequence(ctx, pipeline.Requests)()
		after := here.watch(elected("ours"), watching(here))
		Eventually(here.retracted(ctx, there.key("cm", "k"))).Should(BeTrue())
		Consistently(here.sequence(ctx, pipeline.Requests)).Should(Equal(sequence + 1))
		Expect(here.url(ctx, here.key("cm", "k"))()).NotTo(BeEmpty())
		Expect(here.results(ctx)).To(BeEmpty())
		Expect(after.value(own + "out_of_scope_wants")()).To(BeZero())
	})

	DescribeTable("ignores wants that another watcher may have published, and counts and logs them once: from",
		func(ctx SpecContext, publisher, reader string) {
			before := here.watch(elected(publisher), watching(there))
			there.satisfied(ctx, "cm", "example.com")
			before.stop()
			after := here.watch(elected(reader), watching(here))
			Eventually(after.value(own + "out_of_scope_wants")).Should(BeEquivalentTo(1))
			Eventually(after.log).Should(gbytes.Say("ignoring wants of other installations"))
			Expect(here.nats.Restart()).To(Succeed())
			Eventually(after.value(own + "sessions_total")).Should(BeEquivalentTo(2))
			Expect(here.url(ctx, there.key("cm", "k"))()).NotTo(BeEmpty())
			Expect(after.log).NotTo(gbytes.Say("ignoring wants of other installations"))
		},
		Entry("another installation", "theirs", "ours"),
		Entry("a watcher without an election", "", "ours"),
		Entry("any watcher, if neither has an election", "", ""),
	)
})

var _ = Describe("A forbidden namespace", func() {
	It("does not delay others after a restart, and keeps its wants until it can be read", func(ctx SpecContext) {
		w, closed := newWorld(ctx), newWorld(ctx)
		closed.nats, closed.js, closed.pipeline = w.nats, w.js, w.pipeline
		both := func(o *options) { o.config.Namespaces = []string{w.namespace, closed.namespace} }
		first := w.watch(both).awaitReady()
		kept, gone := closed.key("kept", "k"), closed.key("gone", "k")
		for _, key := range []pipeline.Key{kept, gone} {
			closed.create(ctx, key.Name, "k=example.com")
			Eventually(w.url(ctx, key)).ShouldNot(BeEmpty())
		}
		first.stop()
		closed.delete(ctx, "gone")

		const user = "a watcher that may read one of two namespaces"
		read := rbacv1.PolicyRule{
			Verbs: []string{"list", "watch"}, Resources: []string{"configmaps"},
			APIGroups: []string{""},
		}
		w.grant(ctx, user, "read", read)
		w.watch(both, audited, func(o *options) {
			o.cluster = rest.CopyConfig(cluster)
			o.cluster.Impersonate.UserName = user
		}).awaitReady()
		w.create(ctx, "open", "k=example.com/open")
		Eventually(w.url(ctx, w.key("open", "k"))).Should(Equal("https://example.com/open"))
		Consistently(w.retracted(ctx, gone)).Should(BeFalse())

		closed.grant(ctx, user, "read", read)
		Eventually(w.retracted(ctx, gone)).Should(BeTrue())
		Expect(w.url(ctx, kept)()).To(Equal("https://example.com"))
	})
})

// grant grants a user a permission in the namespace.
func (w *world) grant(ctx context.Context, user, name string, rule rbacv1.PolicyRule) {
	GinkgoHelper()
	meta := metav1.ObjectMeta{Name: name, Namespace: w.namespace}
	_, err := kube.RbacV1().Roles(w.namespace).Create(ctx,
		&rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{rule}}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	_, err = kube.RbacV1().RoleBindings(w.namespace).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: meta,
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: user}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
}

var _ = Describe("A namespace that exceeds its limits", func() {
	It("gets some of its keys, and others once there is room", func(ctx SpecContext) {
		w := newWorld(ctx)
		for n := range 3 {
			w.create(ctx, fmt.Sprint("cm-", n), "k=example.com")
		}
		wanted := func() (names []string) {
			for n := range 3 {
				if name := fmt.Sprint("cm-", n); w.want(ctx, w.key(name, "k"))() != nil {
					names = append(names, name)
				}
			}
			return names
		}
		i := w.watch(func(o *options) { o.config.Quota = quota.Limits{Keys: 2} }).awaitReady()
		Eventually(wanted).Should(HaveLen(2))
		Eventually(func() int { return len(w.reports(ctx)) }).Should(Equal(1))
		Expect(proto.Equal(w.reports(ctx)[0].GetReconcile(), &v1.Reconcile{Bound: &v1.Bound{Keys: 2}})).To(BeTrue())
		Expect(i.value(own + "invalid_objects")()).To(BeEquivalentTo(1))
		Expect(i.value(own+"keys{")()).To(BeEquivalentTo(2), "those within the limit")
		gone := wanted()[0]
		w.delete(ctx, gone)
		Eventually(wanted).WithTimeout(20 * time.Second).Should(And(HaveLen(2), Not(ContainElement(gone))))
	})
})

// options are the options of a watcher under test.
type options struct {
	config  watcher.Config
	cluster *rest.Config
	pace    watcher.Pace
	dial    nats.Option
}

// instance is a running watcher.
type instance struct {
	log     *gbytes.Buffer
	metrics *prometheus.Registry
	health  *process.Health
	cancel  context.CancelFunc
	ended   chan error
}

// watch runs a watcher until the spec ends.
func (w *world) watch(change ...func(*options)) *instance {
	GinkgoHelper()
	o := options{cluster: cluster, dial: w.nats.Dial()}
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
	ctx, cancel := context.WithCancel(context.Background())
	i := &instance{
		log: gbytes.NewBuffer(), metrics: prometheus.NewRegistry(), health: process.NewHealth(),
		cancel: cancel, ended: make(chan error, 1),
	}
	go func() {
		defer GinkgoRecover()
		i.ended <- i.run(ctx, o)
	}()
	DeferCleanup(i.stop)
	return i
}

func (i *instance) run(ctx context.Context, o options) error {
	log := zerolog.New(io.MultiWriter(i.log, GinkgoWriter)).Level(zerolog.InfoLevel).With().Timestamp().Logger()
	broker := process.NATSOptions{URL: "nats://in.process", Dial: o.dial}
	conn, err := broker.Connect(ctx, "watcher", log, i.health.Part("nats"))
	if err != nil {
		return err
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		return err
	}
	rt := &process.Runtime{Log: log, Health: i.health, Metrics: i.metrics, NATS: conn, JetStream: js}
	return watcher.RunAt(ctx, rt, o.config, o.cluster, o.pace)
}

// stop ends the watcher like SIGTERM. It may be called again.
func (i *instance) stop() {
	GinkgoHelper()
	i.cancel()
	var err error
	Eventually(i.ended).Should(Receive(&err))
	i.ended <- err
	if !errors.Is(err, context.Canceled) {
		Expect(err).NotTo(HaveOccurred())
	}
}

// ready returns the response of /readyz?verbose.
func (i *instance) ready() string {
	answer := httptest.NewRecorder()
	i.health.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/readyz?verbose", nil))
	return answer.Body.String()
}

// awaitReady waits until the watcher publishes or is on standby.
func (i *instance) awaitReady() *instance {
	GinkgoHelper()
	Eventually(i.ready).Should(And(
		ContainSubstring("[+]configmaps ok"), ContainSubstring("[+]streams ok"), HaveSuffix("\nok")))
	return i
}

// value returns the sum of the series with a prefix.
func (i *instance) value(series string) func() (float64, error) {
	return func() (float64, error) { return suitetest.MetricValue(i.metrics, series) }
}

// move is an action that increases series.
type move struct {
	what   string
	do     func(context.Context, *world)
	series []string
}

const own = "curlmethat_watcher_"

// moves returns actions that change all metrics.
func moves() []move {
	create := func(ctx context.Context, w *world) { w.create(ctx, "cm", "k=example.com") }
	edit := func(ctx context.Context, w *world) {
		create(ctx, w)
		Eventually(w.url(ctx, w.key("cm", "k"))).ShouldNot(BeEmpty())
		w.ask(ctx, "cm", "k=example.com/other")
	}
	remove := func(ctx context.Context, w *world) {
		create(ctx, w)
		Eventually(w.url(ctx, w.key("cm", "k"))).ShouldNot(BeEmpty())
		w.delete(ctx, "cm")
	}
	hold := func(ctx context.Context, w *world) { w.satisfied(ctx, "cm", "example.com") }
	reports := func(e status.Entry) func(context.Context, *world) {
		return func(ctx context.Context, w *world) {
			create(ctx, w)
			e.ErrorURL = "https://example.com"
			w.annotate(ctx, "cm", object{
				annotation.StatusKey:                  status.Status{Keys: map[string]status.Entry{"k": e}}.String(),
				"x-kv8s.io/" + annotation.RefreshName: "10m",
			})
		}
	}
	contest := func(ctx context.Context, w *world) {
		hold(ctx, w)
		w.patch(ctx, somebody, "cm", object{"data": object{"k": "another value"}})
	}
	drop := func(ctx context.Context, w *world) {
		hold(ctx, w)
		w.ask(ctx, "cm", "other=example.com")
	}
	dropMany := func(ctx context.Context, w *world) {
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
	bad := func(ctx context.Context, w *world) { w.create(ctx, "cm", "not correct") }
	suspend := func(ctx context.Context, w *world) {
		create(ctx, w)
		w.annotate(ctx, "cm", object{"x-kv8s.io/" + annotation.SuspendName: "true"})
	}
	drift := func(ctx context.Context, w *world) {
		hold(ctx, w)
		w.patch(ctx, somebody, "cm", object{"data": nil})
	}
	force := func(ctx context.Context, w *world) {
		hold(ctx, w)
		w.annotate(ctx, "cm", object{"x-kv8s.io/" + annotation.NowName: "please"})
	}
	restart := func(_ context.Context, w *world) { Expect(w.nats.Restart()).To(Succeed()) }
	purge := func(ctx context.Context, w *world) {
		create(ctx, w)
		Eventually(w.url(ctx, w.key("cm", "k"))).ShouldNot(BeEmpty())
		stream := must(w.js.Stream(ctx, pipeline.Requests))
		Expect(stream.Purge(ctx)).To(Succeed())
	}
	trespass := func(ctx context.Context, w *world) {
		want := &v1.Want{Namespace: "elsewhere", Name: "cm", Key: "k", Url: "https://example.com"}
		must(w.pipeline.PublishWant(ctx, want, 0))
		Expect(w.nats.Restart()).To(Succeed())
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
			own + "invalid_objects", own + "reconciles_published_total",
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
		{"a new session", restart, []string{own + "sessions_total"}},
		{"a purge", purge, []string{own + "purges_total"}},
		{"a want of another installation", trespass, []string{own + "out_of_scope_wants"}},
	}
}

// overtake publishes a want that the watcher does not know.
func overtake(ctx context.Context, w *world) {
	key := w.key("cm", "k")
	w.create(ctx, "cm", "k=example.com")
	Eventually(w.url(ctx, key)).ShouldNot(BeEmpty())
	want, last, err := w.pipeline.LastWant(ctx, key)
	Expect(err).NotTo(HaveOccurred())
	other := proto.CloneOf(want)
	other.Url = "https://example.com/other"
	must(w.pipeline.PublishWant(ctx, other, last))
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
			w := newWorld(ctx)
			i := w.watch().awaitReady()
			Eventually(i.value(own + "sessions_total")).Should(BeEquivalentTo(1))
			before := map[string]float64{}
			for _, series := range m.series {
				before[series] = must(i.value(series)())
			}
			m.do(ctx, w)
			for _, series := range m.series {
				Eventually(i.value(series)).Should(BeNumerically(">", before[series]), series)
			}
		})
	}

	It("show blocked work until it is done", func(ctx SpecContext) {
		w := newWorld(ctx)
		held, release := context.WithCancel(context.Background())
		DeferCleanup(release)
		i := w.watch(func(o *options) {
			o.config.Workers = 1
			o.cluster = rest.CopyConfig(o.cluster)
			o.cluster.Wrap(func(next http.RoundTripper) http.RoundTripper { return &slow{next: next, until: held.Done()} })
		}).awaitReady()
		w.create(ctx, "bad", "not correct")
		Eventually(i.value(`workqueue_longest_running_processor_seconds{name="watcher"}`)).Should(BeNumerically(">", 0))
		w.create(ctx, "cm", "k=example.com")
		for _, series := range blocked() {
			Eventually(i.value(series)).Should(BeNumerically(">", 0), series)
		}
		release()
		for _, series := range blocked() {
			Eventually(i.value(series)).Should(BeZero(), series)
		}
	})

	It("show the leader, and only the leader exports metrics of the pipeline", func(ctx SpecContext) {
		w := newWorld(ctx)
		elect := func(o *options) {
			o.config.Election.Enabled, o.pace.Export = true, 20*time.Millisecond
			// The standby does not wait until the Lease expires.
			o.config.Election.Lease, o.config.Election.Renew = time.Minute, 50*time.Second
		}
		leader := w.watch(elect).awaitReady()
		for _, series := range elected() {
			Eventually(leader.value(series)).Should(BeEquivalentTo(1), series)
		}
		standby := w.watch(elect).awaitReady()
		w.create(ctx, "cm", "k=example.com")
		Eventually(leader.value(`curlmethat_pipeline_backlog_messages{consumer="fetcher"}`)).Should(BeEquivalentTo(1))
		for _, series := range elected() {
			Expect(standby.value(series)()).To(BeZero(), series)
		}
		Expect(suitetest.Metrics(standby.metrics)).NotTo(HaveKey(HavePrefix("curlmethat_pipeline_")))
		leader.stop()
		Eventually(standby.value(own + "leader")).Should(BeEquivalentTo(1))
		Eventually(standby.value(`curlmethat_pipeline_backlog_messages{consumer="fetcher"}`)).Should(BeEquivalentTo(1))
		Expect(suitetest.Metrics(leader.metrics)).NotTo(HaveKey(HavePrefix("curlmethat_pipeline_")))
	})

	It("show the duration of an audit, and the silence of the watch", func(ctx SpecContext) {
		i := newWorld(ctx).watch(audited).awaitReady()
		Eventually(i.value(own + "audit_duration_seconds")).Should(BeNumerically(">", 0))
		Eventually(i.value(own + "watch_silence_seconds")).Should(BeNumerically(">", 0.3))
	})

	It("all have a spec", func() {
		series := append(blocked(), elected()...)
		series = append(series, own+"audit_duration_seconds", own+"watch_silence_seconds",
			// See packages audit and reconcile.
			own+"lost_keys_total", own+"events_over_budget_total")
		for _, m := range moves() {
			series = append(series, m.series...)
		}
		definitions, _ := watcher.Metrics() // package exporter tests the others
		Expect(suitetest.UnnamedMetrics(definitions, series)).To(BeEmpty())
	})

	It("follow the conventions and their definitions", func(ctx SpecContext) {
		w := newWorld(ctx)
		i := w.watch(func(o *options) { o.config.Election.Enabled = true }).awaitReady()
		w.satisfied(ctx, "cm", "example.com")
		w.create(ctx, "bad", "not correct")
		Eventually(i.value(own + "events_emitted_total")).Should(BeEquivalentTo(1))
		Eventually(i.value("curlmethat_pipeline_up")).Should(BeEquivalentTo(1))
		definitions, pipeline := watcher.Metrics()
		Expect(suitetest.MetricProblems(i.metrics, append(definitions, pipeline...))).To(BeEmpty())
	})
})

// slow delays the writes of Events.
type slow struct {
	next  http.RoundTripper
	until <-chan struct{}
}

func (s *slow) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodPost && strings.Contains(r.URL.Path, "/events") {
		select {
		case <-s.until:
		case <-r.Context().Done():
		}
	}
	return s.next.RoundTrip(r)
}

var _ = Describe("A want", func() {
	It("is signed, and has the time of its request, from the watch event or managedFields", func(ctx SpecContext) {
		w := newWorld(ctx)
		listed := w.create(ctx, "listed", "k=example.com")
		recorded := listed.ManagedFields[0].Time.Time
		Eventually(time.Now).Should(BeTemporally(">", recorded.Add(1500*time.Millisecond)))
		w.watch().awaitReady()
		Eventually(w.want(ctx, w.key("listed", "k"))).ShouldNot(BeNil())
		asked := func(name string) *v1.Want { return w.want(ctx, w.key(name, "k"))() }
		Expect(asked("listed").GetAskedAt().AsTime()).To(BeTemporally("==", recorded))

		began := time.Now()
		w.create(ctx, "live", "k=example.com")
		Eventually(w.want(ctx, w.key("live", "k"))).ShouldNot(BeNil())
		Expect(w.trusted.Verify(asked("live"))).To(Succeed(), "it is signed")
		Expect(asked("live").GetAskedAt().AsTime()).To(BeTemporally(">=", began))
		Expect(asked("live").GetAskedAt().AsTime()).To(Equal(asked("live").GetObservedAt().AsTime()))
	})
})
