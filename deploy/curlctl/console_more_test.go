package curlctl_test

import (
	"fmt"
	"html"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// differing parts of a page change from run to run.
var differing = []struct {
	what *regexp.Regexp
	with string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(Z| UTC)`), "2026-01-31 12:00:00 UTC"},
	{regexp.MustCompile(`\b\d\d:\d\d:\d\d\b`), "12:00:00"},
	{regexp.MustCompile(`/static/([a-z]+)\.[0-9a-f]{12}\.`), "/static/$1.HASH."},
	{regexp.MustCompile(`points="[^"]+"`), `points="…"`},
	{regexp.MustCompile(`<rect x="\d+"`), `<rect x="…"`},
	{regexp.MustCompile(`in \d+ min: |"In minutes">\d+<`), "in … min"},
	{regexp.MustCompile(`name="job" value="[A-Z0-9]+"`), `name="job" value="JOB"`},
}

// goldenPage compares a page with a file. UPDATE_GOLDEN=1 writes it.
func goldenPage(name, markup string) {
	GinkgoHelper()
	for _, d := range differing {
		markup = d.what.ReplaceAllString(markup, d.with)
	}
	golden(filepath.Join("console", name+".html"), markup)
}

var _ = Describe("A page of the console", func() {
	It("matches its golden file", func(ctx SpecContext) {
		GinkgoT().Setenv("KUBECONFIG", "")
		GinkgoT().Setenv("HOME", GinkgoT().TempDir())
		w := newWorld(ctx)
		later := 20*time.Minute + 30*time.Second
		for i, host := range []string{"a.example.com", "b.example.com", "a.example.com"} {
			want, sequence := w.want(ctx, cm(i), "https://"+host+"/page?token=secret", func(want *v1.Want) {
				want.Name = strings.Repeat("long-", i*12) + want.GetName()
			})
			class := v1.FailureClass_FAILURE_CLASS_BAD_STATUS
			if i == 1 {
				class = v1.FailureClass_FAILURE_CLASS_TIMEOUT
			}
			w.fail(ctx, want, class, host)
			Expect(w.client.SetTimer(ctx, &v1.Due{
				Want: want, WantSequence: sequence, Cause: v1.Cause_CAUSE_RECHECK, Reported: class, Attempts: 6,
			}, time.Now().Add(later+time.Duration(i*10+15)*time.Minute))).Error().NotTo(HaveOccurred())
		}
		Expect(w.client.PublishAudit(ctx, &v1.Audit{
			Action: "replay", User: "replayer", OnBehalfOf: "jane",
			Filter: "--host=a.example.com", Selected: 2,
		})).To(Succeed())
		b := w.openAt(func() time.Time { return time.Now().Add(later) }).enter()
		Eventually(func() string { return b.page("/queue") }).WithPolling(polling).
			Should(MatchRegexp(`data-n="requests.backlog">3<`))
		goldenPage("overview", b.page("/"))
		Expect(b.page("/failures?host=b.example.com")).NotTo(ContainSubstring("cm-000"))
		for name, path := range map[string]string{
			"failures": "/failures", "failure": "/failures/1", "hosts": "/hosts", "schedule": "/schedule", "wants": "/wants",
			"queue":  "/queue",
			"object": "/objects/default/cm-000", "audit": "/audit", "replay": "/failures/replay?host=a.example.com",
			"problem": "/failures?since=yesterday",
		} {
			_, page := b.at(path)
			goldenPage(name, mainOf(page))
		}
	})
})

var _ = Describe("The console under load and faults", func() {
	It("replays 20,000 failures in one job, without later ones", func(ctx SpecContext) {
		w := newWorld(ctx)
		Expect(fill(w.js, w.epoch)).To(Succeed())
		Eventually(func() uint64 { return w.lastSequences(ctx)[2] }).Should(BeEquivalentTo(manyFailures))
		b := w.open().enter()
		page := b.page("/failures")
		Expect(page).To(ContainSubstring("<b>20,000</b> match"))
		Expect(len(page)).To(BeNumerically("<", 60<<10))
		dialog := b.page("/failures/replay?key=k")
		Expect(dialog).To(ContainSubstring("Would replay up to 20,000 failures."))
		form := formOf(dialog)
		form.Set("rate", "0")
		late, _ := w.want(ctx, pipeline.Key{Namespace: "default", Name: "late", Key: "k"}, "https://fast.example.com/")
		w.fail(ctx, late, v1.FailureClass_FAILURE_CLASS_TIMEOUT, "fast.example.com")
		_, job := b.send(http.MethodPost, "/failures/replay", form, nil)
		_, again := b.send(http.MethodPost, "/failures/replay", form, nil)
		path := regexp.MustCompile(`/jobs/[A-Z0-9]+`)
		Expect(path.FindString(again)).To(Equal(path.FindString(job)))
		Eventually(func() string { return b.page("/jobs/" + form.Get("job")) }).
			WithTimeout(2 * time.Minute).WithPolling(polling).
			Should(And(ContainSubstring("replay is done"), ContainSubstring("<b>20,000</b> of 20,000")))
		audit := w.ok(ctx, "audit", "-o", "json")
		Expect(strings.Count(audit, `"action": "replay"`)).To(Equal(1))
		Expect(audit).To(And(ContainSubstring(`"selected": 20000`), ContainSubstring(`"done": 20000`),
			ContainSubstring(`"via": "console"`)))
		_, err := w.client.LastDue(ctx, pipeline.KeyOf(late))
		Expect(err).To(MatchError(pipeline.ErrNoMessage))
	})

	It("continues a job after an outage of NATS, and shows the previous numbers meanwhile", func(ctx SpecContext) {
		w := newWorld(ctx)
		for i := range 30 {
			_, _ = w.want(ctx, cm(i), "https://a.example.com/")
		}
		b := w.open().enter()
		Expect(b.page("/")).To(ContainSubstring(`data-n="wants">30<`))
		form := b.form("/refetch?namespace=default")
		form.Set("rate", "3/s")
		_, _ = b.send(http.MethodPost, "/refetch", form, nil)
		job := "/jobs/" + form.Get("job")
		Eventually(func() string { return b.page(job) }).WithPolling(polling).
			Should(MatchRegexp(`<b>[1-9]\d?</b> of 30 requested`))
		w.server.Stop()
		Eventually(func() int { code, _ := b.at("/failures"); return code }).WithPolling(polling).
			Should(Equal(http.StatusServiceUnavailable))
		Eventually(func() string { return b.page("/") }).WithPolling(polling).
			Should(And(MatchRegexp(`id="lost">.*The numbers are from \d\d:\d\d:\d\d`), ContainSubstring(`data-n="wants">30<`)))
		Expect(b.page(job)).To(ContainSubstring("is running"))
		Expect(w.server.Start()).To(Succeed())
		Eventually(func() string { return b.page(job) }).WithPolling(polling).
			Should(And(ContainSubstring("refetch is done"), ContainSubstring("<b>30</b> of 30")))
		Eventually(func() string { return b.page("/") }).WithPolling(polling).Should(ContainSubstring(`id="lost" hidden`))
	})

	It("names denied subjects, and serves the other pages", func(ctx SpecContext) {
		w := configured(ctx, `authorization { users: [
			{ user: app, password: p }
			{ user: half, password: p, permissions: { publish: { deny: [
				"$JS.API.STREAM.INFO.CURL_FAILURES", "$JS.API.DIRECT.GET.CURL_FAILURES", "$JS.API.DIRECT.GET.CURL_FAILURES.>"
			] } } }
		] }`)
		want, _ := w.want(ctx, cm(1), "https://a.example.com/")
		w.fail(ctx, want, v1.FailureClass_FAILURE_CLASS_TIMEOUT, "a.example.com")
		b := w.as("half").open().enter()
		code, text := b.at("/failures")
		Expect(code).To(Equal(http.StatusForbidden), text)
		Expect(text).To(And(MatchRegexp(`This NATS user may not publish to \$JS\.API\.[A-Z.]+\.CURL_FAILURES`),
			ContainSubstring(`href="/doctor"`)))
		for _, path := range []string{"/wants", "/hosts", "/queue", "/schedule"} {
			Eventually(func() int { code, _ := b.at(path); return code }).WithPolling(polling).Should(Equal(http.StatusOK), path)
		}
		Expect(b.page("/wants")).To(ContainSubstring("default/cm-001"))
		Expect(b.page("/")).To(And(ContainSubstring("The failures are unavailable"), ContainSubstring("CURL_FAILURES")))
		Expect(b.page("/doctor")).To(MatchRegexp(`the rest.*CURL_FAILURES`))
	})

	It("names a missing stream, and serves the other pages", func(ctx SpecContext) {
		w := newWorld(ctx)
		want, _ := w.want(ctx, cm(1), "https://a.example.com/")
		w.fail(ctx, want, v1.FailureClass_FAILURE_CLASS_TIMEOUT, "a.example.com")
		Expect(w.js.DeleteStream(ctx, pipeline.Requests)).To(Succeed())
		b := w.open().enter()
		for _, path := range []string{"/wants", "/hosts", "/schedule"} {
			code, text := b.at(path)
			Expect(code).To(Equal(http.StatusServiceUnavailable), path)
			Expect(text).To(And(ContainSubstring(pipeline.Requests), ContainSubstring("curlctl setup"),
				ContainSubstring(`href="/doctor"`)), path)
		}
		Expect(b.page("/failures")).To(ContainSubstring("default/cm-001"))
		Expect(b.page("/")).To(And(ContainSubstring("The wants are unavailable"), ContainSubstring(pipeline.Requests)))
		Expect(b.page("/doctor")).To(ContainSubstring(pipeline.Requests))
		b.page("/audit")
		Expect(w.js.DeleteStream(ctx, pipeline.Failures)).To(Succeed())
		code, text := b.at("/failures")
		Expect(code).To(Equal(http.StatusServiceUnavailable))
		Expect(text).To(And(ContainSubstring(pipeline.Failures), ContainSubstring("curlctl setup")))
	})

	It("warns about a wrong clock, and serves every page", func(ctx SpecContext) {
		w := newWorld(ctx)
		want, sequence := w.want(ctx, cm(1), "https://a.example.com/")
		w.fail(ctx, want, v1.FailureClass_FAILURE_CLASS_TIMEOUT, "a.example.com")
		Expect(w.client.SetTimer(ctx, &v1.Due{Want: want, WantSequence: sequence, Cause: v1.Cause_CAUSE_RECHECK},
			time.Now().Add(time.Hour))).Error().NotTo(HaveOccurred())
		for off, text := range map[time.Duration]string{
			-630 * time.Second: "10m behind that of NATS",
			630 * time.Second:  "10m ahead of that of NATS",
		} {
			b := w.openAt(func() time.Time { return time.Now().Add(off) }).enter()
			Eventually(func() string { return b.page("/") }).WithPolling(polling).
				Should(And(ContainSubstring("The clock of this machine is "+text), ContainSubstring(`href="/doctor"`)))
			for _, path := range []string{
				"/", "/failures", "/failures/1", "/hosts", "/schedule", "/wants", "/queue",
				"/objects/default/cm-001", "/audit", "/doctor",
			} {
				b.page(path)
			}
			b.stop()
		}
	})

	It("allows other sites only links", func(ctx SpecContext) {
		w := newWorld(ctx)
		b := w.open("--auth=none")
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
			for _, path := range []string{"/live", "/failures", "/failures/replay", "/failures.json", "/static/icon.svg"} {
				Expect(from(site, "no-cors", "image", path)).To(Equal(http.StatusForbidden), path)
				Expect(from(site, "navigate", "iframe", path)).To(Equal(http.StatusForbidden), path)
			}
			Expect(from(site, "navigate", "document", "/failures")).To(Equal(http.StatusOK))
		}
		Expect(from("same-origin", "cors", "empty", "/failures.json")).To(Equal(http.StatusOK))
		Expect(from("none", "navigate", "document", "/failures/replay")).To(Equal(http.StatusForbidden),
			"without sign-in there is no replay")
	})

	It("pages through the schedule, also if many timers fire at the same time", func(ctx SpecContext) {
		w := newWorld(ctx)
		at := time.Now().Add(30 * time.Minute)
		const many = 120
		for i := range many {
			want, sequence := w.want(ctx, cm(i), "https://a.example.com/")
			Expect(w.client.SetTimer(ctx, &v1.Due{Want: want, WantSequence: sequence, Cause: v1.Cause_CAUSE_REFRESH},
				at.Add(time.Duration(i/70)*time.Minute))).Error().NotTo(HaveOccurred())
		}
		b := w.open().enter()
		seen := map[string]bool{}
		for address := "/schedule"; address != ""; {
			page := b.page(address)
			for _, match := range regexp.MustCompile(`href="/objects/default/(cm-\d+)"`).FindAllStringSubmatch(page, -1) {
				Expect(seen).NotTo(HaveKey(match[1]))
				seen[match[1]] = true
			}
			address = ""
			if match := regexp.MustCompile(`rel="next" href="([^"]+)"`).FindStringSubmatch(page); match != nil {
				address = html.UnescapeString(match[1])
			}
		}
		Expect(seen).To(HaveLen(many))
	})

	It("continues the live stream after a reconnect", func(ctx SpecContext) {
		w := newWorld(ctx)
		_, _ = w.want(ctx, cm(0), "https://a.example.com/")
		b := w.open().enter()
		b.page("/")
		fail := func(n int) {
			GinkgoHelper()
			want, _ := w.want(ctx, cm(n), "https://a.example.com/")
			w.fail(ctx, want, v1.FailureClass_FAILURE_CLASS_TIMEOUT, "a.example.com")
		}
		ticks, end := b.ticks(ctx, "/live?entries=0")
		Eventually(ticks).Should(Receive())
		fail(1)
		var last heard
		Eventually(ticks).Should(Receive(&last, WithTransform(heard.text, ContainSubstring("cm-001/my.data · Timeout"))))
		end()
		fail(2)
		id := last.ID
		Expect(id).NotTo(BeEmpty())
		ticks, end = b.ticks(ctx, "/live?entries=0", func(r *http.Request) { r.Header.Set("Last-Event-ID", id) })
		defer end()
		text := ""
		Eventually(func() string {
			select {
			case tick := <-ticks:
				text += tick.text()
			default:
			}
			return text
		}).Should(ContainSubstring("cm-002/my.data · Timeout"))
		Expect(text).NotTo(ContainSubstring("cm-001/my.data · Timeout"))
		code, text := b.send(http.MethodGet, "/live", nil, func(r *http.Request) { r.Header.Set("Last-Event-ID", "x") })
		Expect(code).To(Equal(http.StatusBadRequest), text)
	})

	It("lists the containers that use a ConfigMap, and whether they can have its newest content", func(ctx SpecContext) {
		client, _, namespace := inCluster(ctx)
		w := newWorld(ctx)
		_, err := client.CoreV1().ServiceAccounts(namespace).Create(ctx,
			&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		_, err = client.CoreV1().ConfigMaps(namespace).Create(ctx,
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "rules"}, Data: map[string]string{"page": "page"}},
			metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		podsOf{client, namespace}.create(ctx,
			`{metadata: {name: env-0}, spec: {containers: [
				{name: app, env: [{name: A, valueFrom: {configMapKeyRef: {name: rules, key: page}}}]}
			]}}`, time.Now().Add(-40*time.Hour))
		b := w.open("--kubeconfig=" + os.Getenv("KUBECONFIG")).enter()
		Expect(b.page("/objects/" + namespace + "/rules")).
			To(And(ContainSubstring("env-0"), ContainSubstring("no, not before a restart"),
				MatchRegexp(`data-label="Keys"><bdi>page</bdi>`)))
	})

	It("lists the Watchers of a cluster", func(ctx SpecContext) {
		_, config, namespace := inCluster(ctx)
		w := newWorld(ctx)
		watchers := servingWatchers(ctx, config, namespace)
		for i, status := range []string{"True", "False"} {
			created, err := watchers.Create(ctx, &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "watch.x-kv8s.io/v1alpha1", "kind": "Watcher",
				"metadata": map[string]any{"name": fmt.Sprintf("rules-%d", i)},
				"spec":     map[string]any{"configData": map[string]any{"LEVEL": "warn"}},
			}}, metav1.CreateOptions{})
			Expect(err).NotTo(HaveOccurred())
			created.Object["status"] = map[string]any{"fetched": "2/3", "conditions": []any{map[string]any{
				"type": "Ready", "status": status, "reason": "TargetExists", "message": "<b>exists</b>",
				"lastTransitionTime": "2026-11-22T20:00:00Z",
			}}}
			_, err = watchers.UpdateStatus(ctx, created, metav1.UpdateOptions{})
			Expect(err).NotTo(HaveOccurred())
		}
		b := w.open("--kubeconfig=" + os.Getenv("KUBECONFIG")).enter()
		Eventually(func() string { return b.page("/help") }).WithPolling(polling).Should(ContainSubstring(`href="/watchers"`))
		page := b.page("/watchers?namespace=" + namespace)
		Expect(page).To(And(ContainSubstring(namespace+"/rules-0"), ContainSubstring(`class="state ok"`),
			ContainSubstring("2/3"), ContainSubstring("&lt;b&gt;exists")))
		Expect(b.page("/objects/" + namespace + "/rules-1")).
			To(And(ContainSubstring("Watcher rules-1"), ContainSubstring("TargetExists"),
				ContainSubstring(namespace+"/rules-1-config")))
		code, _ := b.at("/watchers?after=nonsense")
		Expect(code).To(Equal(http.StatusBadRequest))
		without := w.open("--auth=none", "--kubeconfig="+filepath.Join(GinkgoT().TempDir(), "none"))
		Expect(without.page("/help")).NotTo(ContainSubstring(`href="/watchers"`))
	})
})

// text has the messages, line by line.
func (h heard) text() string { return fmt.Sprintln(h.Passing) }

// mainOf returns the main element of a page.
func mainOf(page string) string {
	GinkgoHelper()
	_, main, found := strings.Cut(page, "<main")
	Expect(found).To(BeTrue(), page)
	main, _, _ = strings.Cut(main, "</main>")
	return "<main" + main + "</main>\n"
}

// formOf returns the fields of a dialog.
func formOf(page string) url.Values {
	GinkgoHelper()
	_, dialog, found := strings.Cut(page, `<div class="dialog`)
	Expect(found).To(BeTrue(), "%s", page)
	form := url.Values{}
	for _, match := range fieldsOfForm.FindAllStringSubmatch(dialog, -1) {
		form.Add(match[1], match[2])
	}
	return form
}
