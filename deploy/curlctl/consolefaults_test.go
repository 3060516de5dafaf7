package curlctl_test

import (
	"net/http"
	"os"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/proto/pipeline"
)

var _ = Describe("The console", func() {
	It("shows the previous numbers during an outage of NATS", func(ctx SpecContext) {
		w := newWorld(ctx)
		_, _ = w.want(ctx, cm(1), "https://a.example.com/")
		b := w.open().enter()
		Expect(b.page("/")).To(ContainSubstring(">1 wanted keys<"))
		w.server.Stop()
		Eventually(func() int { code, _ := b.at("/failures"); return code }).WithPolling(polling).
			Should(Equal(http.StatusServiceUnavailable))
		b.eventually("/").Should(And(MatchRegexp(`id="lost">.*The numbers are from \d\d:\d\d:\d\d`),
			ContainSubstring(">1 wanted keys<")))
		Expect(w.server.Start()).To(Succeed())
		b.eventually("/").Should(ContainSubstring(`id="lost" hidden`))
	})

	It("shows denied subjects, and serves the other pages", func(ctx SpecContext) {
		w := configured(ctx, `authorization { users: [
			{ user: app, password: p }
			{ user: half, password: p, permissions: { publish: { deny: [
				"$JS.API.STREAM.INFO.CURL_FAILURES", "$JS.API.DIRECT.GET.CURL_FAILURES", "$JS.API.DIRECT.GET.CURL_FAILURES.>"
			] } } }
		] }`)
		w.failing(ctx, cm(1), "https://a.example.com/")
		b := w.as("half").open()
		b.at(b.entry)
		code, text := b.at("/failures")
		Expect(code).To(Equal(http.StatusForbidden), text)
		Expect(text).To(And(MatchRegexp(`This NATS user may not publish to \$JS\.API\.[A-Z.]+\.CURL_FAILURES`),
			ContainSubstring("curlctl doctor")))
		for _, path := range []string{"/", "/wants"} {
			Eventually(func() string { _, page := b.at(path); return page }).WithPolling(polling).
				Should(ContainSubstring("CURL_FAILURES"), path)
		}
		Expect(b.page("/doctor")).To(MatchRegexp(`(?s)the rest.*CURL_FAILURES`))
	})

	It("shows which stream is missing, and serves the other pages", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.failing(ctx, cm(1), "https://a.example.com/")
		Expect(w.js.DeleteStream(ctx, pipeline.Requests)).To(Succeed())
		b := w.open()
		b.at(b.entry)
		for _, path := range []string{"/", "/wants"} {
			code, text := b.at(path)
			Expect(code).To(Equal(http.StatusServiceUnavailable), path)
			Expect(text).To(And(ContainSubstring(pipeline.Requests), ContainSubstring("curlctl setup"),
				ContainSubstring("curlctl doctor")), path)
		}
		Expect(b.page("/failures")).To(ContainSubstring("cm-001"))
		Expect(b.page("/doctor")).To(ContainSubstring(pipeline.Requests))
		Expect(w.js.DeleteStream(ctx, pipeline.Failures)).To(Succeed())
		code, text := b.at("/failures")
		Expect(code).To(Equal(http.StatusServiceUnavailable))
		Expect(text).To(And(ContainSubstring(pipeline.Failures), ContainSubstring("curlctl setup")))
	})

	It("allows links from other sites, but no other requests", func(ctx SpecContext) {
		w := newWorld(ctx)
		b := w.open().enter()
		from := func(site, mode, dest, path string) int {
			GinkgoHelper()
			code, _ := b.send(http.MethodGet, path, nil, func(r *http.Request) {
				r.Header.Set("Sec-Fetch-Site", site)
				r.Header.Set("Sec-Fetch-Mode", mode)
				r.Header.Set("Sec-Fetch-Dest", dest)
			})
			return code
		}
		for _, site := range []string{"cross-site", "same-site"} {
			for _, path := range []string{"/live", "/failures", "/failures/replay", "/assets/icon.svg"} {
				Expect(from(site, "no-cors", "image", path)).To(Equal(http.StatusForbidden), path)
				Expect(from(site, "navigate", "iframe", path)).To(Equal(http.StatusForbidden), path)
			}
			Expect(from(site, "navigate", "document", "/failures")).To(Equal(http.StatusOK))
		}
		Expect(from("same-origin", "cors", "empty", "/live")).To(Equal(http.StatusOK))
	})

	It("shows the Watcher that owns a ConfigMap", func(ctx SpecContext) {
		_, config, namespace := inCluster(ctx)
		w := newWorld(ctx)
		watchers := servingWatchers(ctx, config, namespace)
		created := watcher(ctx, watchers, "rules", map[string]any{"configData": map[string]any{"LEVEL": "warn"}})
		notReady(ctx, watchers, created, "2/3", "<b>exists</b>")
		b := w.open("--kubeconfig=" + os.Getenv("KUBECONFIG")).enter()
		Expect(b.page("/objects/" + namespace + "/rules")).
			To(And(ContainSubstring("/rules<"), ContainSubstring("TargetExists"), ContainSubstring("2/3"),
				ContainSubstring("&lt;b&gt;exists"), ContainSubstring(namespace+"/rules-config")))
	})
})
