package suitetest

import (
	"context"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/kv8s/curl-me-that/proto/process"
)

// Service is a service in the process of the test.
type Service struct {
	Log     *gbytes.Buffer
	Health  *process.Health
	Metrics *prometheus.Registry
	// Stop ends the service like SIGTERM, and waits for its drain.
	Stop func()
}

// Serve runs a service until the spec ends; dial reaches its broker.
func Serve(name string, dial nats.Option, run func(context.Context, *process.Runtime) error) *Service {
	s := &Service{Log: gbytes.NewBuffer(), Health: process.NewHealth(), Metrics: prometheus.NewRegistry()}
	log := zerolog.New(zerolog.MultiLevelWriter(s.Log, ginkgo.GinkgoWriter)).Level(zerolog.InfoLevel)
	rt := process.Runtime{Log: log, Health: s.Health, Metrics: s.Metrics}
	begun := s.Health.Part("begun") // health without parts would be ready
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- rt.Run(ctx, name, &process.NATSOptions{URL: nats.DefaultURL, Dial: dial},
			func(ctx context.Context, rt *process.Runtime) error {
				begun.Ready()
				return run(ctx, rt)
			})
	}()
	s.Stop = sync.OnceFunc(func() {
		cancel()
		gomega.Eventually(ended).Should(gomega.Receive(gomega.Or(gomega.BeNil(), gomega.MatchError(context.Canceled))))
	})
	ginkgo.DeferCleanup(s.Stop)
	return s
}

// Value returns the sum of all series whose names begin with a prefix, which may include labels.
func (s *Service) Value(prefix string) func() (float64, error) {
	return func() (float64, error) { return MetricValue(s.Metrics, prefix) }
}

// Logged counts the lines of the log with a text.
func (s *Service) Logged(text string) int { return Lines(s.Log, text) }

// Lines counts the lines of a log with a text.
func Lines(log *gbytes.Buffer, text string) (n int) {
	for line := range strings.Lines(string(log.Contents())) {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}
