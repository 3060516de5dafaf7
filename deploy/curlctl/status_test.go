package curlctl_test

import (
	"encoding/json"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/proto/pipeline"
)

var _ = Describe("status", func() {
	var w *world
	BeforeEach(func(ctx SpecContext) { w = newWorld(ctx) })

	It("shows the pipeline at a glance", func(ctx SpecContext) {
		w.fill(ctx)
		golden("status", w.ok(ctx, "status"))
		var view struct {
			Now       map[string]int
			Blocked   string
			Timers    struct{ Pending int }
			Consumers []struct{ Backlog int }
		}
		Expect(json.Unmarshal([]byte(w.ok(ctx, "status", "-o", "json")), &view)).To(Succeed())
		Expect(view.Now).To(Equal(map[string]int{"ok": 1, "pending": 2}))
		Expect(view.Timers.Pending).To(Equal(2))
		Expect(view.Consumers[0].Backlog).To(Equal(3))
		w.want(ctx, cm(3), "https://d.example.com/")
		w.forget(ctx, cm(3))
		Expect(w.ok(ctx, "status")).To(ContainSubstring(" of 3 keys pending"), "a tombstone wants nothing")
		Expect(w.js.DeleteConsumer(ctx, pipeline.Requests, pipeline.FetcherConsumer)).To(Succeed())
		r := w.run(ctx, "status")
		Expect(r.code).To(Equal(5))
		Expect(r.err).To(ContainSubstring("curlctl setup"))
	})

	It("shows a pause, which loses nothing", func(ctx SpecContext) {
		site := newOrigin()
		site.up.Store(true)
		w.fetch()
		Expect(w.ok(ctx, "pause")).To(ContainSubstring("paused until `curlctl resume`"))
		w.ok(ctx, "setup") // must not end the pause
		Expect(w.ok(ctx, "status")).To(ContainSubstring("paused until `curlctl resume`"))
		w.want(ctx, cm(1), site.URL)
		w.want(ctx, cm(2), site.URL)
		Consistently(site.gets.Load).WithTimeout(300 * time.Millisecond).Should(BeZero())
		Expect(w.ok(ctx, "resume")).To(ContainSubstring("2 requests waiting"))
		Eventually(func() uint64 { return w.lastSequences()[1] }).Should(BeEquivalentTo(2))
		Expect(w.ok(ctx, "pause", "--for=1h")).To(ContainSubstring("for 1h"))
		Expect(w.ok(ctx, "status")).To(ContainSubstring("resumes in 39m"))
		Expect(w.ok(ctx, "pause", "--for=2d")).To(ContainSubstring("for 2d"))
		Expect(w.run(ctx, "pause", "--for=2x").err).To(ContainSubstring(`"2x" is not a duration such as 10m, 1h30m or 2d`))
		w.ok(ctx, "resume")
		Expect(w.ok(ctx, "resume")).To(Equal("Fetching was not paused.\n"))
		Eventually(func() string { return w.ok(ctx, "status") }).
			Should(ContainSubstring("stopped: results wait and no writer takes them"))
	})
})
