package world

import (
	"bufio"
	"context"
	"net/http"
	"strconv"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/process"
)

// Metric returns the sum of all series of a metric whose labels contain a text such as
// `outcome="ok"`.
func (s *Service) Metric(ctx context.Context, name string, labels ...string) float64 {
	GinkgoHelper()
	var text string
	Eventually(ctx, func() (code int, err error) {
		text, code, err = process.Get(ctx, "http://"+s.Address+"/metrics")
		return code, err
	}).Should(Equal(http.StatusOK))
	sum := 0.0
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() {
		if v, ok := sample(lines.Text(), name, labels); ok {
			sum += v
		}
	}
	return sum
}

// Counters returns all counters of the services and sequences of the streams, which
// change with every publish, fetch, write and Event.
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
		{Fetcher, "curlmethat_fetcher_requests_total"},
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

// sample parses a line of the Prometheus text format if it belongs to the metric.
func sample(line, name string, labels []string) (float64, bool) {
	rest, found := strings.CutPrefix(line, name)
	if !found || rest == "" || rest[0] != ' ' && rest[0] != '{' {
		return 0, false
	}
	space := strings.LastIndexByte(rest, ' ')
	for _, l := range labels {
		if !strings.Contains(rest[:space], l) {
			return 0, false
		}
	}
	v, err := strconv.ParseFloat(rest[space+1:], 64)
	return v, err == nil
}
