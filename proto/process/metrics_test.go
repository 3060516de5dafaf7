package process_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/testkit/natstest"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/proto/process"
)

var _ = It("The metrics of every service report its version, and whether it is connected to a broker", func() {
	server := natstest.Broker(GinkgoTB(), natstest.Options{})
	toy := suitetest.Serve("toy", server.Dial(), func(ctx context.Context, rt *process.Runtime) error {
		rt.Started()
		<-ctx.Done()
		return nil
	})
	Eventually(toy.Value("curlmethat_toy_nats_connected")).Should(BeEquivalentTo(1))
	Expect(toy.Value(`curlmethat_build_info{component="toy"`)()).To(BeEquivalentTo(1))
	Expect(toy.Value("curlmethat_toy_nats_reconnects_total")()).To(BeZero())
	server.Stop()
	Eventually(toy.Value("curlmethat_toy_nats_connected")).Should(BeZero())
	Expect(server.Start()).To(Succeed())
	Eventually(toy.Value("curlmethat_toy_nats_connected")).Should(BeEquivalentTo(1))
	Eventually(toy.Value("curlmethat_toy_nats_reconnects_total")).Should(BeEquivalentTo(1))
	Expect(suitetest.MetricProblems(toy.Metrics, process.Metrics("toy"))).To(BeEmpty())
})
