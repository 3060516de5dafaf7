package world

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/common/model"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/process"
	"github.com/kv8s/curl-me-that/deploy/testkit/natstest"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
)

// Service is a service that runs as a process.
type Service struct {
	*process.Process
	// Address where it serves health and metrics.
	Address string
}

// readyTimeout is long because other tests may keep the machine busy.
const readyTimeout = 40 * time.Second

// Launch starts another service, with additional flags.
func (w *World) Launch(ctx context.Context, name string, flags ...string) *Service {
	GinkgoHelper()
	address := w.FreeAddress()
	args := append(w.flags(ctx, name), "--listen="+address)
	args = append(args, w.options.Flags[name]...)
	p := suitetest.Must(process.Start(process.Program{
		Name: name, Path: w.Program(name), Args: append(args, flags...), Env: w.options.Env,
		Health: "http://" + address + "/readyz",
	}))
	s := &Service{Process: p, Address: address}
	w.all = append(w.all, s)
	return s
}

// Beside starts a second installation for the same namespaces, with its own NATS, which reads another annotation.
// It has additional flags for the watcher and the writer, and returns its services in the order of Services.
// Checker does not know that annotation: attribute all versions to the spec before it ends.
func (w *World) Beside(ctx context.Context, annotationKey string, selection ...string) (services []*Service) {
	GinkgoHelper()
	server := suitetest.Must(natstest.Run(natstest.Options{Listen: true}))
	DeferCleanup(server.Close)
	w.beside = append(w.beside, server.URL())
	DeferCleanup(func(ctx SpecContext) {
		for _, s := range services {
			if s.Running() {
				s.ShouldStop(ctx)
			}
		}
	})
	for _, name := range Services() {
		flags := []string{"--nats-url=" + server.URL()}
		if name != Fetcher {
			flags = append(append(flags, "--annotation-keys="+annotationKey), selection...)
		}
		services = append(services, w.Launch(ctx, name, flags...))
	}
	for _, s := range services {
		s.EventuallyReady(ctx)
	}
	return services
}

// flags returns the flags of a service in every world.
func (w *World) flags(ctx context.Context, name string) []string {
	GinkgoHelper()
	flags := []string{}
	if name != Keeper {
		flags = append(flags, "--nats-url="+w.broker)
	}
	kubeconfig := w.Cluster.Kubeconfig
	if own := w.options.Kubeconfigs[name]; own != nil {
		kubeconfig = own(ctx, w.Namespace)
	}
	switch name {
	case Watcher:
		flags = append(flags, "--kubeconfig="+kubeconfig, "--namespaces="+strings.Join(w.namespaces(), ","),
			"--min-refresh=1s", "--signing-key="+w.SigningKey)
		if w.options.AckWait > 0 {
			flags = append(flags, "--manage-streams=off")
		}
	case Fetcher: // it has no access to Kubernetes
		flags = append(flags, process.AllowLoopback, "--min-refresh=1s", "--retry-base=200ms",
			"--trusted-keys="+w.TrustedKeys)
	case Writer:
		flags = append(flags, "--kubeconfig="+kubeconfig, "--trusted-keys="+w.TrustedKeys)
	case Keeper:
		flags = append(flags, "--kubeconfig="+kubeconfig, "--namespaces="+strings.Join(w.namespaces(), ","))
	}
	return flags
}

// Watcher returns the watcher that World started.
func (w *World) Watcher() *Service { return w.services[Watcher] }

// Fetcher returns the fetcher that World started.
func (w *World) Fetcher() *Service { return w.services[Fetcher] }

// Writer returns the writer that World started.
func (w *World) Writer() *Service { return w.services[Writer] }

// Service returns the service of that name that World started.
func (w *World) Service(name string) *Service { return w.services[name] }

// EventuallyReady waits until the service is ready.
func (s *Service) EventuallyReady(ctx context.Context) {
	GinkgoHelper()
	Eventually(ctx, func() error {
		if err := s.Ended(); err != nil {
			return StopTrying(err.Error())
		}
		return s.Ready(ctx)
	}).WithTimeout(readyTimeout).Should(Succeed())
}

// Restart starts the service again after it exited, and waits until it is ready.
func (s *Service) Restart(ctx context.Context) {
	GinkgoHelper()
	Expect(s.Again()).To(Succeed())
	s.EventuallyReady(ctx)
}

// Metric returns the sum of all series of a metric whose labels contain each of the texts, such as
// `outcome="ok"`.
func (s *Service) Metric(ctx context.Context, name string, labels ...string) float64 {
	GinkgoHelper()
	var samples model.Vector
	Eventually(ctx, func() (err error) {
		samples, err = process.Samples(ctx, "http://"+s.Address+"/metrics")
		return err
	}).Should(Succeed())
	sum := 0.0
	for _, sample := range samples {
		series := sample.Metric.String()
		lacks := func(label string) bool { return !strings.Contains(series, label) }
		if string(sample.Metric[model.MetricNameLabel]) == name && !slices.ContainsFunc(labels, lacks) {
			sum += float64(sample.Value)
		}
	}
	return sum
}

// Counters returns counters of the services, streams, Events and versions. Every publish, fetch, write, Event
// and log line changes one of them.
func (w *World) Counters(ctx context.Context) map[string]float64 {
	GinkgoHelper()
	flow := w.eventuallyFlow(ctx)
	counters := map[string]float64{
		"requests": float64(flow.requests), "results": float64(flow.results), "waiting": float64(flow.waiting),
		"hits": float64(w.Origin.Hits()), "events": float64(len(w.Events(ctx))),
	}
	for _, c := range []struct{ service, metric string }{
		{Watcher, "curlmethat_watcher_wants_published_total"},
		{Watcher, "curlmethat_watcher_publish_conflicts_total"},
		{Fetcher, "curlmethat_fetcher_messages_total"},
		{Fetcher, "curlmethat_fetcher_gets_total"},
		{Writer, "curlmethat_writer_patches_total"},
		{Writer, "curlmethat_writer_reads_total"},
		{Writer, "curlmethat_writer_messages_total"},
	} {
		counters[c.metric] = w.Service(c.service).Metric(ctx, c.metric)
	}
	for _, name := range Services() {
		counters["lines of "+name] = float64(w.Service(name).Log.Count())
	}
	for _, l := range w.History.Lives() {
		counters["versions"] += float64(len(l.Versions))
	}
	return counters
}

// Console runs curlctl console until the end of the spec, and returns it with its address for a browser.
func (e *Environment) Console(ctx context.Context, flags ...string) (p *process.Process, address string) {
	GinkgoHelper()
	p = suitetest.Must(process.Start(process.Program{
		Name: "curlctl", Path: e.Program("curlctl"), Args: append([]string{"console"}, flags...),
	}))
	DeferCleanup(p.Kill)
	printed := regexp.MustCompile(`http://\S+`)
	Eventually(ctx, func() string { address = printed.FindString(p.Log.String()); return address }).ShouldNot(BeEmpty())
	return p, address
}
