package engine_test

import (
	"net/http"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/fetcher/internal/engine"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/pipeline/natstest"
)

var _ = Describe("Metrics", func() {
	It("count outcomes, GETs, and what was kept or put off", func() {
		w := newWorld(natstest.Options{}, pipeline.Topology{})
		f := w.fetcher()
		good, bad, flaky := serve(says("hello there")), serve(fails(http.StatusNotFound)), serve(fails(http.StatusBadGateway))
		for i, url := range []string{good.URL, good.URL, bad.URL, flaky.URL} {
			w.publish(w.want(url, named("cm", i)))
			f.step()
		}
		for name, value := range map[string]float64{
			"requests_total content":        2,
			"requests_total gave_up":        1,
			"requests_total retry":          1,
			"requests_total parked":         0,
			"gets_total ok":                 1,
			"gets_total BadStatus":          2,
			"coalesced_total ":              1,
			"retries_total ":                1,
			"claims_total won":              0,
			"claims_total lost":             0,
			"dead_letters_total BadStatus":  1,
			"parked_total host_busy":        0,
			"pushbacks_total full":          0,
			"in_flight_messages ":           0,
			"not_modified_total ":           0,
			"requests_total malformed":      0,
			"requests_total postponed":      0,
			"parked_total namespace_share":  0,
			"parked_total host_slowed":      0,
			"parked_total slots_busy":       0,
			"requests_total waits":          0,
			"parked_total namespace_bytes":  0,
			"parked_total shared_call_slow": 0,
			"pushbacks_total broker":        0,
			"requests_total superseded":     0,
			"requests_total tombstone":      0,
			"requests_total in_sync":        0,
			"requests_total recovered":      0,
			"requests_total unmodified":     0,
		} {
			name, label, _ := strings.Cut(name, " ")
			Expect(f.metric("curlmethat_fetcher_"+name, label)).To(Equal(value), "%s %s", name, label)
		}
	})

	It("observe how late a regular fetch comes, and nothing for a key that was never well", func() {
		w := newWorld(natstest.Options{}, pipeline.Topology{})
		f := w.fetcher()
		w.publish(w.want(serve(says("hello there")).URL, every(10*time.Minute)))
		f.step()
		count, _ := f.histogram("curlmethat_fetcher_staleness_seconds")
		Expect(count).To(BeZero(), "the first fetch cannot be late")
		timer := w.timer().Due
		Expect(timer.GetFreshUntil().AsTime()).To(BeTemporally(">", w.clock.Now()))
		w.clock.Advance(timer.GetFreshUntil().AsTime().Sub(w.clock.Now()) + 3*time.Hour)
		w.fire(timer)
		f.step()
		count, sum := f.histogram("curlmethat_fetcher_staleness_seconds")
		Expect(count).To(BeEquivalentTo(1))
		Expect(sum).To(Equal((3 * time.Hour).Seconds()))
	})
})

var _ = Describe("An engine", func() {
	It("needs a configuration that can work", func() {
		_, err := engine.New(engine.Config{}, engine.Deps{})
		Expect(err).To(MatchError(ContainSubstring("attempts")))
	})

	It("needs its dependencies", func() {
		w := newWorld(natstest.Options{}, pipeline.Topology{})
		_, err := engine.New(w.fetcher().config, engine.Deps{})
		Expect(err).To(MatchError(ContainSubstring("dependency")))
	})
})
