package watcher_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"

	"github.com/kv8s/curl-me-that/proto/process"
	"github.com/kv8s/curl-me-that/watcher"
	"github.com/kv8s/curl-me-that/watcher/internal/leader/lease"
)

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
