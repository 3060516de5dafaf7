package curlctl_test

import (
	"context"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/testkit/kubetest"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

var _ = Describe("The console", func() {
	var w *world
	fail := func(ctx context.Context, n int, host string) *v1.Want {
		GinkgoHelper()
		want, _ := w.want(ctx, cm(n), "https://"+host+"/page?token=secret")
		w.fail(ctx, want, v1.FailureClass_FAILURE_CLASS_BAD_STATUS)
		return want
	}

	Context("of one person", func() {
		BeforeEach(func(ctx SpecContext) { w = newWorld(ctx) })

		It("signs in once with the printed address, and serves only loopback names", func() {
			b := w.open()
			code, text := b.at("/")
			Expect(code).To(Equal(http.StatusUnauthorized))
			Expect(text).To(ContainSubstring("Open the address"))
			b.enter()
			b.page("/failures")
			other := &browser{base: b.base, client: &http.Client{Transport: b.client.Transport}}
			code, text = other.at(b.entry)
			Expect(code).To(Equal(http.StatusUnauthorized))
			Expect(text).To(ContainSubstring("was used already"))
			code, _ = b.send(http.MethodGet, "/", nil, func(r *http.Request) { r.Host = "evil.example.com" })
			Expect(code).To(Equal(http.StatusMisdirectedRequest))
		})

		It("refuses forms of other sites, and large forms", func(ctx SpecContext) {
			fail(ctx, 1, "a.example.com")
			b := w.open().enter()
			for _, site := range []string{"cross-site", "same-site"} {
				code, _ := b.send(http.MethodPost, "/refetch", nil, func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", site) })
				Expect(code).To(Equal(http.StatusForbidden))
			}
			Expect(w.client.LastMessage(ctx, pipeline.Requests, cm(1).DueSubject())).Error().
				To(MatchError(pipeline.ErrNoMessage))
			code, _ := b.send(http.MethodPost, "/refetch", url.Values{"host": {strings.Repeat("x", 100<<10)}}, nil)
			Expect(code).To(Equal(http.StatusRequestEntityTooLarge))
		})

		It("sets security headers on every response", func() {
			b := w.open().enter()
			stranger := &http.Client{Transport: b.client.Transport}
			for _, c := range []struct {
				client       *http.Client
				method, path string
				site, host   string
				code         int
			}{
				{b.client, http.MethodGet, "/", "", "", http.StatusOK},
				{b.client, http.MethodGet, "/failures", "", "", http.StatusOK},
				{b.client, http.MethodGet, "/live", "", "", http.StatusOK},
				{b.client, http.MethodGet, "/nothing", "", "", http.StatusNotFound},
				{b.client, http.MethodGet, "/assets/console.js", "", "", http.StatusOK},
				{b.client, http.MethodPost, "/refetch", "cross-site", "", http.StatusForbidden},
				{b.client, http.MethodGet, "/", "", "evil.example.com", http.StatusMisdirectedRequest},
				{stranger, http.MethodGet, "/", "", "", http.StatusUnauthorized},
			} {
				r := suitetest.Must(http.NewRequest(c.method, b.base+c.path, nil))
				r.Header.Set("Sec-Fetch-Site", c.site)
				r.Host = c.host
				response := suitetest.Must(c.client.Do(r))
				code, text := read(response)
				Expect(code).To(Equal(c.code), text)
				for name, value := range hardening() {
					Expect(response.Header.Values(name)).To(Equal([]string{value}), "%s of %s %s", name, c.method, c.path)
				}
			}
		})

		It("explains empty pages", func() {
			b := w.open().enter()
			for path, text := range map[string]string{
				"/": "No keys are failing.", "/failures": "No failures in the last 14 days",
				"/wants":  "Annotate a ConfigMap",
				"/doctor": "streams and consumers are up to date", "/help": "next and previous row",
			} {
				Expect(b.page(path)).To(ContainSubstring(text), path)
			}
		})

		It("shows each failure once on all pages of a list", func(ctx SpecContext) {
			const many = 120
			for i := range many {
				fail(ctx, i, "a.example.com")
			}
			b := w.open().enter()
			seen := map[string]bool{}
			address := "/failures?host=a.example.com"
			for address != "" {
				page := b.page(address)
				for _, match := range regexp.MustCompile(`data-open href="/failures/(\d+)"`).FindAllStringSubmatch(page, -1) {
					Expect(seen).NotTo(HaveKey(match[1]))
					seen[match[1]] = true
				}
				address = ""
				if match := regexp.MustCompile(`rel="next" href="([^"]+)"`).FindStringSubmatch(page); match != nil {
					address = strings.ReplaceAll(match[1], "&amp;", "&")
				}
			}
			Expect(seen).To(HaveLen(many))
		})

		It("explains invalid addresses, without status 500", func(ctx SpecContext) {
			fail(ctx, 1, "a.example.com")
			w.fail(ctx, fail(ctx, 2, "a.example.com"), v1.FailureClass_FAILURE_CLASS_TIMEOUT)
			Expect(w.client.DeleteDeadLetter(ctx, 2)).To(Succeed())
			Expect(w.js.Publish(ctx, "curl.failure.Timeout.h.default.x.%ZZ", []byte("garbage"))).Error().NotTo(HaveOccurred())
			b := w.open().enter()
			for _, c := range []struct {
				path string
				code int
				text string
			}{
				{"/failures?since=yesterday", 400, "neither a duration"},
				{"/failures?reason=Nope", 400, "is not one of"},
				{"/failures?below=-1", 400, "is not the ID of a failure"},
				{"/failures?below=9999999", 200, "unreadable"},
				{"/failures/2", 404, "may have been removed"},
				{"/failures/x", 404, "is not the ID"},
				{"/failures/4", 404, "failure 4 not found"},
				{"/objects/default/nothing", 404, "ConfigMap default/nothing: not found"},
				{"/nothing", 404, "There is no page"},
				{"/failures/replay?id=x", 400, "is not the ID"},
				{"/failures/replay?id=99", 404, "failure 99 not found"},
				{"/live?failed=x", 400, "is not a number"},
				{"/wants?state=fine", 400, "is not failing"},
				{"/wants?from=-1", 400, "is not a number of keys"},
				{"/%00", 404, "There is no page"},
				{"/failures?host=%zz", 400, "invalid URL escape"},
				{"/failures?host=%ff%00%E2%80%AE<script>", 200, "No failure matches"},
			} {
				code, text := b.at(c.path)
				Expect(code).To(Equal(c.code), "%s: %s", c.path, text)
				Expect(strings.ReplaceAll(text, "&#34;", `"`)).To(ContainSubstring(c.text), c.path)
			}
		})

		It("escapes text of tenants, servers and users", func(ctx SpecContext) {
			hostile := "<script>alert(1)</script>\"><img src=x onerror=alert(1)>\u202egnp.exe"
			key := pipeline.Key{Namespace: "default", Name: "cm-" + hostile, Key: "k" + hostile}
			want, _ := w.want(ctx, key, "https://a.example.com/"+hostile)
			letter := &v1.DeadLetter{
				Want: want, Snippet: []byte(hostile + strings.Repeat("\x00", 1024)),
				Failure: &v1.Failure{Class: v1.FailureClass_FAILURE_CLASS_TIMEOUT, Host: "h" + hostile},
			}
			Expect(w.client.PublishDeadLetter(ctx, key, letter, "1")).To(Succeed())
			w.history(ctx, key, "one\n"+hostile, "two\n"+hostile+"\x1b[2J", "\xff")
			b := w.open().enter()
			Expect(b.page("/versions/default/" + url.PathEscape(key.Name) + "/" + url.PathEscape(key.Key))).
				To(And(ContainSubstring("-one\n"), ContainSubstring("&#43;two\n"), ContainSubstring("Binary contents")))
			for _, path := range []string{
				"/versions/default/" + url.PathEscape(key.Name) + "/" + url.PathEscape(key.Key),
				"/", "/failures", "/failures/1", "/wants", "/failures/replay?id=1",
				"/failures?name=" + url.QueryEscape(hostile),
				"/objects/default/" + url.PathEscape(key.Name), "/nothing" + url.PathEscape(hostile),
			} {
				_, text := b.at(path)
				Expect(text).NotTo(ContainSubstring("<script>alert"), path)
				Expect(text).NotTo(ContainSubstring("<img src=x"), path)
				Expect(text).NotTo(ContainSubstring("\u202e"), path)
				Expect(text).NotTo(ContainSubstring("\x00"), path)
				Expect(text).NotTo(MatchRegexp(`href="javascript:`), path)
			}
		})

		It("replays the selected failures, without later ones", func(ctx SpecContext) {
			site := newOrigin()
			for i := range 5 {
				w.failing(ctx, cm(i), site.URL+"/page")
			}
			w.forget(ctx, cm(0))
			b := w.open().enter()
			dialog := b.page("/failures/replay?host=localhost")
			Expect(dialog).To(And(ContainSubstring("Would replay 4 of 5 failures."),
				ContainSubstring("Skipped 1 failure: gone"), ContainSubstring("curlctl replay --host=localhost --rate=50/s")))
			form := formOf(dialog)
			w.failing(ctx, cm(9), site.URL+"/page")
			_, page := b.send(http.MethodPost, "/failures/replay", form, nil)
			Expect(page).To(And(ContainSubstring("Replayed 4 of 5 failures."), ContainSubstring("Skipped 1 failure: gone")))
			Expect(w.client.LastMessage(ctx, pipeline.Requests, cm(1).DueSubject())).Error().NotTo(HaveOccurred())
			Expect(w.client.LastMessage(ctx, pipeline.Requests, cm(9).DueSubject())).Error().
				To(MatchError(pipeline.ErrNoMessage))
			_, page = b.send(http.MethodPost, "/failures/replay", form, nil)
			Expect(page).To(And(ContainSubstring("Replayed 0 of 5 failures."),
				ContainSubstring("Skipped 4 failures: replayed less")))
			form.Del("top")
			code, page := b.send(http.MethodPost, "/failures/replay", form, nil)
			Expect(code).To(Equal(http.StatusBadRequest))
			Expect(page).To(ContainSubstring("open the dialog again"))
		})

		It("fetches an object now", func(ctx SpecContext) {
			fail(ctx, 1, "a.example.com")
			b := w.open().enter()
			_, page := b.send(http.MethodPost, "/refetch", b.form("/refetch?namespace=default&name=cm-001"), nil)
			Expect(page).To(ContainSubstring("Requested 1 of 1 key."))
			Expect(w.client.LastMessage(ctx, pipeline.Requests, cm(1).DueSubject())).Error().NotTo(HaveOccurred())
			Expect(b.page("/refetch?namespace=default&host=a.example.com")).
				To(ContainSubstring("curlctl refetch --all --namespace=default --host=a.example.com"))
		})

		It("keeps the filter of wanted keys in its command, its dialog and beyond the last page", func(ctx SpecContext) {
			fail(ctx, 1, "a.example.com")
			b := w.open().enter()
			filter := "host=a.example.com&name=cm-001&namespace=default"
			Expect(b.page("/wants?state=failing&" + filter)).
				To(ContainSubstring("curlctl failing --namespace=default --name=cm-001 --host=a.example.com"))
			Expect(b.page("/refetch?" + filter)).
				To(ContainSubstring(`href="/wants?` + strings.ReplaceAll(filter, "&", "&amp;") + `"`))
			Expect(b.page("/wants?from=50&" + filter)).
				To(And(ContainSubstring("No more keys match."), ContainSubstring("← first")))
		})

		It("tells an open page how many new failures match its filter", func(ctx SpecContext) {
			fail(ctx, 1, "a.example.com")
			b := w.open().enter()
			live := liveOf(b.page("/failures?host=a.example.com"))
			Expect(b.page(live)).NotTo(ContainSubstring("new – show"))
			fail(ctx, 2, "a.example.com")
			fail(ctx, 3, "b.example.com")
			b.eventually(live).Should(ContainSubstring(">1 new – show<"))
		})

		It("reads the streams again for a page opened after a while", func() {
			var later atomic.Int64
			polled := make(chan *nats.Msg, 1000)
			sub := suitetest.Must(w.js.Conn().ChanSubscribe("$JS.API.CONSUMER.INFO.>", polled))
			DeferCleanup(sub.Unsubscribe)
			b := w.openAt(func() time.Time { return time.Now().Add(time.Duration(later.Load())) }).enter()
			b.page("/")
			Eventually(polled).Should(Receive())
			later.Store(int64(62 * time.Second))
			for len(polled) > 0 {
				<-polled
			}
			b.page("/")
			Eventually(polled).Should(Receive())
		})
	})

	Context("with limited NATS permissions", func() {
		BeforeEach(func(ctx SpecContext) {
			w = guarded(ctx)
			fail(ctx, 1, "a.example.com")
		})

		It("shows a viewer no buttons, and refuses forged forms", func() {
			wire := make(chan *nats.Msg, 64)
			for _, subject := range []string{
				"curl.due.>", "curl.timer.>",
			} {
				sub := suitetest.Must(w.js.Conn().ChanSubscribe(subject, wire))
				DeferCleanup(sub.Unsubscribe)
			}
			b := w.as("viewer").open().enter()
			for _, path := range []string{"/", "/failures", "/failures/1", "/wants", "/objects/default/cm-001"} {
				page := b.page(path)
				Expect(page).NotTo(MatchRegexp(`Replay|Fetch now|>Fetch |type="checkbox" name`), path)
			}
			for _, path := range []string{"/failures/replay", "/refetch"} {
				form := url.Values{"id": {"1"}, "top": {"99"}}
				code, text := b.send(http.MethodPost, path, form, nil)
				Expect(code).To(Equal(http.StatusForbidden), path)
				Expect(text).To(ContainSubstring("viewer may not"), path)
			}
			Consistently(wire, "100ms").ShouldNot(Receive())
			Expect(b.page("/doctor")).To(ContainSubstring("viewer"))

			By("receiving the messages of a replayer's form, to prove that the subscriptions work")
			b = w.as("replayer").open().enter()
			Expect(b.page("/failures")).To(ContainSubstring("Replay selected"))
			_, _ = b.send(http.MethodPost, "/failures/replay", b.form("/failures/replay?id=1"), nil)
			Eventually(wire).Should(Receive(HaveField("Subject", HavePrefix("curl.due."))))
		})
	})

	It("serves only on loopback addresses", func(ctx SpecContext) {
		w = newWorld(ctx)
		for _, listen := range []string{"0.0.0.0:0", ":0", "[::]:0", "192.0.2.1:0", "example.com:80"} {
			r := w.run(ctx, "console", "--listen="+listen)
			Expect(r.code).To(Equal(2))
			Expect(r.err).To(ContainSubstring("loopback"))
		}
	})
})

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
		Expect(w.js.DeleteStream(ctx, pipeline.DeadLetters)).To(Succeed())
		code, text := b.at("/failures")
		Expect(code).To(Equal(http.StatusServiceUnavailable))
		Expect(text).To(And(ContainSubstring(pipeline.DeadLetters), ContainSubstring("curlctl setup")))
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
		watchers := kubetest.Watchers(ctx, GinkgoTB(), config).In(namespace)
		created := suitetest.Must(kubetest.ApplyWatcher(ctx, watchers, "rules", "configData: {LEVEL: warn}"))
		notReady(ctx, watchers, created, "2/3", "<b>exists</b>")
		b := w.open("--kubeconfig=" + os.Getenv("KUBECONFIG")).enter()
		Expect(b.page("/objects/" + namespace + "/rules")).
			To(And(ContainSubstring("/rules<"), ContainSubstring("TargetExists"), ContainSubstring("2/3"),
				ContainSubstring("&lt;b&gt;exists"), ContainSubstring(namespace+"/rules-config")))
	})
})

// goldenPage compares a page with a file. UPDATE_GOLDEN=1 writes it.
func goldenPage(name, markup string) {
	GinkgoHelper()
	for _, v := range volatile {
		markup = v.pattern.ReplaceAllString(markup, v.text)
	}
	golden("console/"+name+".html", markup)
}

var _ = It("A page of the console matches its golden file", func(ctx SpecContext) {
	GinkgoT().Setenv("KUBECONFIG", "")
	GinkgoT().Setenv("HOME", GinkgoT().TempDir())
	w := newWorld(ctx)
	later := 20*time.Minute + 30*time.Second
	for i, host := range []string{"a.example.com", "b.example.com", "a.example.com"} {
		class := v1.FailureClass_FAILURE_CLASS_BAD_STATUS
		if i == 1 {
			class = v1.FailureClass_FAILURE_CLASS_TIMEOUT
		}
		due := &v1.Due{Cause: v1.Cause_CAUSE_RECHECK, Reported: class, Attempts: 6}
		want := w.timed(ctx, cm(i), "https://"+host+"/page?token=secret", due, later+time.Duration(i*10+15)*time.Minute,
			func(want *v1.Want) { want.Name = strings.Repeat("long-", i*12) + want.GetName() })
		w.fail(ctx, want, class)
	}
	b := w.openAt(func() time.Time { return time.Now().Add(later) }).enter()
	b.eventually("/").Should(ContainSubstring(`<p class="big">3</p><p class="of">waiting for a fetcher</p>`))
	goldenPage("overview", b.page("/"))
	Expect(b.page("/failures?host=b.example.com")).NotTo(ContainSubstring("cm-000"))
	for name, path := range map[string]string{
		"failures": "/failures", "failure": "/failures/1", "wants": "/wants",
		"object": "/objects/default/cm-000", "replay": "/failures/replay?host=a.example.com",
		"problem": "/failures?since=yesterday",
	} {
		_, page := b.at(path)
		goldenPage(name, mainOf(page))
	}
})
