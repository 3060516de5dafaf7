package apply

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"strconv"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/kv8s/curl-me-that/deploy/testkit/natstest"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/proto/budget"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/process"
	"github.com/kv8s/curl-me-that/proto/process/metric"
	"github.com/kv8s/curl-me-that/writer/internal/plan"
)

// TestHistoryShares lets a tenant change 1 MB bodies every 10 s for an hour of injected time, with two writers. Each
// has its own shares, so the tenant gets at most two of 4 MiB, in a history of 16 MiB.
func TestHistoryShares(t *testing.T) {
	t.Parallel()
	const share, size, writers = 4 << 20, 1_000_000, 2
	g := NewWithT(t)
	g.SetDefaultEventuallyTimeout(time.Minute)
	_, js, _ := natstest.Ensured(t, pipeline.Topology{HistoryBytes: 16 << 20})
	client := pipeline.NewClient(js)
	now := time.Now()
	var (
		histories  [writers]*history
		registries [writers]*prometheus.Registry
	)
	config := HistoryConfig{Bytes: budget.Config{Burst: share, Refill: pipeline.HistoryAge}}
	for i := range histories {
		registries[i] = prometheus.NewRegistry()
		metrics := NewMetrics(metric.New(registries[i], "writer"))
		h := suitetest.Sure(newHistory(config, client, metrics, process.NewSampledLog(zerolog.Nop())))
		h.bytes = budget.New(config.Bytes, func() time.Time { return now })
		histories[i] = h
	}
	number := 0
	keep := func(namespace string, body []byte) (digest string) {
		number++
		digest = pipeline.Digest(body)
		histories[number%writers].keep(t.Context(), plan.NewItem(&v1.Result{
			Want: &v1.Want{Namespace: namespace, Name: "cm", Key: "key"}, Sequence: uint64(number),
			Outcome: &v1.Result_Content{Content: &v1.Content{Body: body, Sha256: digest}},
		}), false)
		return digest
	}
	kept := func(namespace, digest string) func() error {
		return func() error { _, err := client.Body(t.Context(), namespace, digest); return err }
	}
	large := make([]byte, size-8)
	_, _ = rand.Read(large)
	var quiet []string
	for n := range 360 {
		digest := keep("hostile", append([]byte(fmt.Sprintf("%08d", n)), large...))
		if n < share/size*writers {
			g.Eventually(kept("hostile", digest)).Should(Succeed(), "body %d", n)
		}
		if n%72 == 0 {
			digest := keep("quiet", bytes.Repeat([]byte(strconv.Itoa(n)), 100))
			g.Eventually(kept("quiet", digest)).Should(Succeed())
			quiet = append(quiet, digest)
			number++ // so that the next large body goes to another writer
		}
		now = now.Add(10 * time.Second)
	}
	for _, r := range registries {
		g.Expect(suitetest.MetricValue(r, `curlmethat_writer_versions_total{outcome="over_share"}`)).
			To(BeEquivalentTo(360/writers - share/size))
	}
	for _, digest := range quiet {
		g.Expect(kept("quiet", digest)()).To(Succeed())
	}
	key := pipeline.Key{Namespace: "quiet", Name: "cm", Key: "key"}
	g.Expect(client.Versions(t.Context(), key)).To(HaveLen(len(quiet)))
}

func TestAVersionThatThePausedHistoryLacksIsCounted(t *testing.T) {
	t.Parallel()
	g, registry := NewWithT(t), prometheus.NewRegistry()
	_, js, _ := natstest.Ensured(t, pipeline.Topology{})
	h, err := newHistory(HistoryConfig{}, pipeline.NewClient(js), NewMetrics(metric.New(registry, "writer")),
		process.NewSampledLog(zerolog.Nop()))
	g.Expect(err).NotTo(HaveOccurred())
	h.found.Pause()
	item := plan.NewItem(&v1.Result{Outcome: &v1.Result_Content{Content: &v1.Content{Body: []byte("b")}}})
	h.keep(t.Context(), item, false)
	g.Expect(suitetest.MetricValue(registry, `curlmethat_writer_versions_total{outcome="paused"}`)).To(BeEquivalentTo(1))
}
