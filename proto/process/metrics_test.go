package process_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/kv8s/curl-me-that/deploy/testkit/natstest"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/proto/process"
)

var _ = It("The metrics of every service report its version, and whether it is connected to a broker", func() {
	server := natstest.Broker(GinkgoTB(), natstest.Options{})
	registry := prometheus.NewRegistry()
	rt := process.Runtime{Log: zerolog.New(GinkgoWriter), Health: process.NewHealth(), Metrics: registry}
	broker := &process.NATSOptions{URL: "nats://in.process", Dial: server.Dial()}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- rt.Run(ctx, "toy", broker, func(ctx context.Context, rt *process.Runtime) error {
			rt.Started()
			<-ctx.Done()
			return nil
		})
	}()
	DeferCleanup(func() { cancel(); Eventually(ended).Should(Receive()) })
	value := func(series string) func() (float64, error) {
		return func() (float64, error) { return suitetest.MetricValue(registry, series) }
	}
	Eventually(value("curlmethat_toy_nats_connected")).Should(BeEquivalentTo(1))
	Expect(value(`curlmethat_build_info{component="toy"`)()).To(BeEquivalentTo(1))
	Expect(value("curlmethat_toy_nats_reconnects_total")()).To(BeZero())
	server.Stop()
	Eventually(value("curlmethat_toy_nats_connected")).Should(BeZero())
	Expect(server.Start()).To(Succeed())
	Eventually(value("curlmethat_toy_nats_connected")).Should(BeEquivalentTo(1))
	Eventually(value("curlmethat_toy_nats_reconnects_total")).Should(BeEquivalentTo(1))
	Expect(suitetest.MetricProblems(registry, process.Metrics("toy"))).To(BeEmpty())
})
