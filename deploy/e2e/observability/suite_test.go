// Package observability injects faults and checks that the dashboard, alerts and runbooks show each of them
// within 30 s.
package observability_test

import (
	"context"
	"fmt"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	"github.com/prometheus/prometheus/promql"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/monitor"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/origin"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
)

func TestObservability(t *testing.T) { world.Run(t, "Observability") }

var (
	env       *world.Environment
	dashboard *monitor.Dashboard
	rules     *monitor.Rules
)

var _ = BeforeSuite(func() {
	env = world.Open()
	dashboard = suitetest.Must(monitor.ReadDashboard("../../chart/files/dashboards/curl-me-that.json"))
	rules = suitetest.Must(monitor.ReadRules("../../chart/files/rules/*.yaml",
		"../../chart/files/rules/production/*.yaml"))
})

const (
	// shows is how long the dashboard may take to show a fault.
	shows = 30 * time.Second
	// calm is how long recovery may take. A rejected message is retried after a pause.
	calm = time.Minute
	// scrapes is the scrape interval in this suite. With 15 s, the dashboard would be in time too: one scrape
	// is visible after 15 s, and a rate after two.
	scrapes = time.Second
)

// board is the dashboard of a world's services, with its alerts.
type board struct{ *monitor.Monitor }

// watch scrapes the services of a world until the end of the spec.
func watch(w *world.World) board {
	var processes []monitor.Process
	for _, name := range world.Services() {
		processes = append(processes, monitor.Process{Job: name, Address: w.Service(name).Address})
	}
	m := monitor.New(rules, processes...)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer GinkgoRecover()
		defer close(done)
		Expect(m.Run(ctx, scrapes)).To(Succeed())
	}()
	DeferCleanup(func() { cancel(); <-done })
	return board{m}
}

// shows waits until a panel shows a series with this legend and value.
func (b board) shows(ctx context.Context, kind, title, legend string, value types.GomegaMatcher) {
	GinkgoHelper()
	panel := suitetest.Must(dashboard.Panel(kind, title))
	Eventually(ctx, func(g Gomega) {
		drawn := map[string]float64{}
		for _, t := range panel.Targets {
			values, err := b.Ask(ctx, t.Expr)
			g.Expect(err).NotTo(HaveOccurred())
			for _, v := range values {
				drawn[name(t.LegendFormat, v)] = v.F
			}
		}
		g.Expect(drawn).To(HaveKeyWithValue(ContainSubstring(legend), value))
	}).WithTimeout(shows).WithPolling(scrapes/2).Should(Succeed(), "panel %q", title)
}

// name returns a legend as Grafana renders it.
func name(legend string, s promql.Sample) string {
	if legend == "__auto" {
		return s.Metric.String()
	}
	for l := range s.Metric.Map() {
		legend = strings.ReplaceAll(legend, "{{"+l+"}}", s.Metric.Get(l))
	}
	return legend
}

// alerts waits until the expression of an alert is true. The alert fires later, after its "for" duration.
func (b board) alerts(ctx context.Context, name string) {
	GinkgoHelper()
	Eventually(ctx, func() ([]string, error) { return b.pending(ctx) }).
		WithTimeout(shows).WithPolling(scrapes / 2).Should(ContainElement(name))
}

// calms waits until the expression of an alert is no longer true.
func (b board) calms(ctx context.Context, name string) {
	GinkgoHelper()
	Eventually(ctx, func() ([]string, error) { return b.pending(ctx) }).
		WithTimeout(calm).WithPolling(scrapes / 2).ShouldNot(ContainElement(name))
}

// pending returns the alerts whose expression is true.
func (b board) pending(ctx context.Context) ([]string, error) {
	var names []string
	for _, a := range rules.Alerts {
		values, err := b.Ask(ctx, monitor.Query(a.Expr))
		if err != nil {
			return nil, err
		}
		if len(values) > 0 {
			names = append(names, a.Alert)
		}
	}
	slices.Sort(names)
	return names, nil
}

// draws waits until all panels show data, except for the named ones.
func (b board) draws(ctx context.Context, except ...string) {
	GinkgoHelper()
	Eventually(ctx, func(g Gomega) {
		var empty []string
		for _, p := range dashboard.Shows() {
			series := 0
			for _, t := range p.Targets {
				values, err := b.Ask(ctx, t.Expr)
				g.Expect(err).NotTo(HaveOccurred(), p.Title)
				series += len(values)
			}
			if series == 0 && !slices.Contains(except, p.Title) {
				empty = append(empty, p.Title)
			}
		}
		g.Expect(empty).To(BeEmpty(), "panels without data")
	}).WithTimeout(shows).WithPolling(scrapes).Should(Succeed())
}

// runbook returns the section that an alert links to.
func runbook(alert string) string {
	GinkgoHelper()
	return suitetest.Must(monitor.Runbook("../../docs/runbooks.md", suitetest.Must(rules.Alert(alert))))
}

// leads follows the runbook of an alert: it contains a curlctl command whose output shows the cause.
func leads(ctx context.Context, w *world.World, alert, command string, cause types.GomegaMatcher) {
	GinkgoHelper()
	Expect(runbook(alert)).To(ContainSubstring("$ curlctl " + command))
	Eventually(ctx, func() string {
		args := append(strings.Fields(command), "--nats-url="+w.Broker())
		if command != "doctor" { // other suites have ConfigMaps in the same API server
			args = append(args, "--namespace="+w.Namespace)
		}
		said, _ := exec.CommandContext(ctx, env.Program("curlctl"), args...).CombinedOutput()
		return string(said)
	}).Should(cause)
}

// tells follows the runbook of an alert: it quotes a log message, which the service has logged with the cause.
func tells(s *world.Service, alert, message, cause string) {
	GinkgoHelper()
	Expect(runbook(alert)).To(ContainSubstring(message))
	Eventually(func() []string { return s.Log.Matching(message) }).Should(ContainElement(ContainSubstring(cause)))
}

const (
	yes, no = 1.0, 0.0
	// objects is the number of objects that a fault affects.
	objects = 30
)

var _ = Describe("The dashboard shows within 30 s, with an alert,", func() {
	It("a slow host", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{Flags: map[string][]string{world.Fetcher: {"--per-host=15"}}})
		b := watch(w)
		slow := origin.Start()
		DeferCleanup(slow.Close)
		w.Trust(slow) // closing it releases the requests
		for i := range objects {
			page := slow.Page(fmt.Sprintf("/%d", i)).Says("at last")
			page.Hold()
			w.Create(ctx, fmt.Sprintf("slow-%d", i), world.Asking("mydata="+page.URL()))
		}
		b.shows(ctx, "timeseries", "Hosts by state", "queued", BeNumerically(">", 0))
		b.alerts(ctx, "CurlMeThatHostsQueued")
		b.shows(ctx, "timeseries", "GET duration", "p95", BeNumerically(">", 5))
		b.shows(ctx, "timeseries", "Failed GETs by reason", "Timeout", BeNumerically(">", 0))
		b.alerts(ctx, "CurlMeThatGetsSlow")
		tells(w.Fetcher(), "CurlMeThatGetsSlow", `"reason":"Timeout"`, `"host":"localhost"`)
		w.Unfinished()
	})

	It("a dead host", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{Flags: map[string][]string{world.Fetcher: {"--max-attempts=2"}}})
		b := watch(w)
		w.Begin(ctx, objects)
		dead := strings.Replace(env.FreeAddress(), "127.0.0.1", "localhost", 1)
		for i := range objects {
			w.Create(ctx, fmt.Sprintf("dead-%d", i), world.Asking(fmt.Sprintf("mydata=http://%s/%d", dead, i)))
		}
		b.shows(ctx, "timeseries", "Failed GETs by reason", "ConnectFailed", BeNumerically(">", 0))
		b.shows(ctx, "stat", "Failing GETs", "", BeNumerically(">", .1))
		b.shows(ctx, "timeseries", "Dead letters", "ConnectFailed", BeNumerically(">", 0))
		b.alerts(ctx, "CurlMeThatFailureRatio")
		b.alerts(ctx, "CurlMeThatDeadLetters")
		leads(ctx, w, "CurlMeThatFailureRatio", "failing --summary", MatchRegexp(`30 +failing +ConnectFailed +localhost`))
		b.draws(ctx, "Denials by rule", "Backpressure by cause", "Parked attempts by cause", "Reads by kind",
			"Sync before acknowledgement", "Annotation to data (p95)",
			"Watchers", "Longest time not Ready", "Applies by outcome", "Sidecars", "Leader of keepers") // no keeper runs here
		w.Unfinished()
	})

	It("a single key that is no longer refreshed", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{Flags: map[string][]string{world.Watcher: {"--audit-interval=4s"}}})
		b := watch(w)
		w.Begin(ctx, objects)
		page, one := w.Fill(ctx, "one", "good", world.Annotated("x-kv8s.io/curl-refresh", "1s"))
		page.Fails(http.StatusGone)
		b.alerts(ctx, "CurlMeThatKeysStale")
		leads(ctx, w, "CurlMeThatKeysStale", "failing", MatchRegexp(`failing +BadStatus 410 .* one +mydata`))
		leads(ctx, w, "CurlMeThatKeysStale", "wants --stale", MatchRegexp(`one +mydata`))
		page.Says("good again")
		one.EventuallyHasData(ctx, "mydata", "good again")
		b.calms(ctx, "CurlMeThatKeysStale")
		w.Unfinished()
	})

	It("an unavailable NATS", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		b := watch(w)
		b.shows(ctx, "stat", "NATS", "", Equal(yes))
		w.NATS.Stop()
		b.shows(ctx, "stat", "NATS", "", Equal(no))
		for _, service := range world.Services() {
			b.shows(ctx, "timeseries", "NATS connections", service, Equal(no))
		}
		b.shows(ctx, "timeseries", "Pipeline exporter", "exporter", Equal(no))
		b.alerts(ctx, "CurlMeThatNATSDisconnected")
		b.alerts(ctx, "CurlMeThatPipelineBlind")
		tells(w.Writer(), "CurlMeThatNATSDisconnected", "no connection to NATS", w.Broker())
		leads(ctx, w, "CurlMeThatNATSDisconnected", "doctor", ContainSubstring("connection"))
		Expect(w.NATS.Start()).To(Succeed())
		b.calms(ctx, "CurlMeThatNATSDisconnected")
		b.calms(ctx, "CurlMeThatPipelineBlind")
	})
})
