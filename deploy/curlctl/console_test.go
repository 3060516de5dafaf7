package curlctl_test

import (
	"bufio"
	"context"
	"fmt"
	"html"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kv8s/curl-me-that/deploy/curlctl"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/suitetest"
)

// browser is a browser without JavaScript.
type browser struct {
	base, entry string
	client      *http.Client
	// stop stops the console.
	stop func()
}

// polling is the interval of page reads. The limit is 20 per second.
const polling = 100 * time.Millisecond

// open runs `curlctl console` until the spec ends.
func (w *world) open(args ...string) *browser {
	GinkgoHelper()
	return w.openAt(time.Now, args...)
}

func (w *world) openAt(now func() time.Time, args ...string) *browser {
	GinkgoHelper()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := curlctl.CommandAt("curlctl", now)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(append(append([]string{"console"}, args...), w.connect...))
	reader, writer := io.Pipe()
	cmd.SetOut(writer)
	cmd.SetErr(GinkgoWriter)
	ended := make(chan error, 1)
	go func() { err := cmd.ExecuteContext(ctx); _ = writer.CloseWithError(io.EOF); ended <- err }()
	line, err := bufio.NewReader(reader).ReadString('\n')
	if err != nil {
		Expect(<-ended).NotTo(HaveOccurred())
	}
	jar := suitetest.Must(cookiejar.New(nil))
	transport := &http.Transport{}
	client := &http.Client{Jar: jar, Transport: transport}
	b := &browser{entry: regexp.MustCompile(`https?://\S+`).FindString(line), client: client}
	stopped := false
	b.stop = func() {
		if !stopped {
			stopped = true
			cancel()
			Eventually(ended).Should(Receive(BeNil()))
			transport.CloseIdleConnections()
		}
	}
	DeferCleanup(b.stop)
	u := suitetest.Must(url.Parse(b.entry))
	b.base = "http://127.0.0.1:" + u.Port()
	return b
}

// enter opens the printed address, which signs in.
func (b *browser) enter() *browser {
	GinkgoHelper()
	b.at(b.entry)
	b.page("/")
	return b
}

// at returns the status and the page at an address.
func (b *browser) at(address string) (int, string) {
	GinkgoHelper()
	if strings.HasPrefix(address, "/") {
		address = b.base + address
	}
	r := suitetest.Must(b.client.Get(address))
	return read(r)
}

func read(r *http.Response) (int, string) {
	GinkgoHelper()
	defer func() { _ = r.Body.Close() }()
	text := suitetest.Must(io.ReadAll(r.Body))
	return r.StatusCode, string(text)
}

// page returns the page at an address, which must have status 200. Like the script, it retries while NATS is busy.
func (b *browser) page(address string) string {
	GinkgoHelper()
	code, text := b.at(address)
	if code == http.StatusServiceUnavailable {
		Eventually(func() int { code, text = b.at(address); return code }).WithTimeout(3 * time.Minute).WithPolling(polling).
			ShouldNot(Equal(http.StatusServiceUnavailable))
	}
	Expect(code).To(Equal(http.StatusOK), "%s: %s", address, text)
	return text
}

// eventually returns an assertion about a page that changes.
func (b *browser) eventually(address string) AsyncAssertion {
	GinkgoHelper()
	return Eventually(func() string { return b.page(address) }).WithPolling(polling)
}

// send sends a form.
func (b *browser) send(method, path string, form url.Values, change func(*http.Request)) (int, string) {
	GinkgoHelper()
	r := suitetest.Must(http.NewRequest(method, b.base+path, strings.NewReader(form.Encode())))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if change != nil {
		change(r)
	}
	response := suitetest.Must(b.client.Do(r))
	return read(response)
}

var fieldsOfForm = regexp.MustCompile(`<input[^>]* name="([^"]+)" value="([^"]*)"`)

// form returns the fields of the dialog at an address.
func (b *browser) form(address string) url.Values {
	GinkgoHelper()
	return formOf(b.page(address))
}

// ended waits for the end of a job, and returns its page.
func (b *browser) ended(page string) string {
	GinkgoHelper()
	path := regexp.MustCompile(`/jobs/[A-Z0-9]+`).FindString(page)
	if path == "" { // it has ended already
		return page
	}
	Eventually(func() string { page = b.page(path); return page }).WithPolling(polling).
		Should(MatchRegexp(`is done|was stopped|failed</h1>`))
	return page
}

// hardening returns the security headers of every response.
func hardening() map[string]string {
	return map[string]string{
		"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; " +
			"connect-src 'self'; form-action 'self'; " +
			"base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types console",
		"X-Content-Type-Options":       "nosniff",
		"X-Frame-Options":              "DENY",
		"Referrer-Policy":              "no-referrer",
		"Cross-Origin-Opener-Policy":   "same-origin",
		"Cross-Origin-Resource-Policy": "same-origin",
		"Permissions-Policy":           "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
		"Cache-Control":                "no-store",
	}
}

var _ = Describe("The console", func() {
	var w *world
	fail := func(ctx context.Context, n int, host string) *v1.Want {
		GinkgoHelper()
		want, _ := w.want(ctx, cm(n), "https://"+host+"/page?token=secret")
		w.fail(ctx, want, v1.FailureClass_FAILURE_CLASS_BAD_STATUS)
		return want
	}

	Context("with --auth=local", func() {
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
			b := w.open().enter()
			for _, site := range []string{"cross-site", "same-site"} {
				code, _ := b.send(http.MethodPost, "/pause", nil, func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", site) })
				Expect(code).To(Equal(http.StatusForbidden))
			}
			info := suitetest.Must(w.js.Consumer(ctx, pipeline.Requests, pipeline.FetcherConsumer))
			Expect(info.CachedInfo().Paused).To(BeFalse())
			code, _ := b.send(http.MethodPost, "/pause", url.Values{"for": {strings.Repeat("x", 100<<10)}}, nil)
			Expect(code).To(Equal(http.StatusRequestEntityTooLarge))
		})

		It("sets security headers on every response", func() {
			b := w.open().enter()
			asset := regexp.MustCompile(`/static/[a-z]+\.[0-9a-f]{12}\.js`).FindString(b.page("/"))
			stranger := &http.Client{Transport: b.client.Transport}
			for _, c := range []struct {
				client       *http.Client
				method, path string
				site, host   string
				code         int
				cacheControl string
			}{
				{b.client, http.MethodGet, "/", "", "", http.StatusOK, ""},
				{b.client, http.MethodGet, "/failures", "", "", http.StatusOK, ""},
				{b.client, http.MethodGet, "/live", "", "", http.StatusOK, ""},
				{b.client, http.MethodGet, "/nothing", "", "", http.StatusNotFound, ""},
				{b.client, http.MethodGet, "/static/nothing.js", "", "", http.StatusNotFound, ""},
				{b.client, http.MethodGet, asset, "", "", http.StatusOK, "public, max-age=31536000, immutable"},
				{b.client, http.MethodPost, "/pause", "cross-site", "", http.StatusForbidden, ""},
				{b.client, http.MethodGet, "/", "", "evil.example.com", http.StatusMisdirectedRequest, ""},
				{stranger, http.MethodGet, "/", "", "", http.StatusUnauthorized, ""},
			} {
				r := suitetest.Must(http.NewRequest(c.method, b.base+c.path, nil))
				r.Header.Set("Sec-Fetch-Site", c.site)
				r.Host = c.host
				response := suitetest.Must(c.client.Do(r))
				code, text := read(response)
				Expect(code).To(Equal(c.code), text)
				for name, value := range hardening() {
					if name == "Cache-Control" && c.cacheControl != "" {
						value = c.cacheControl
					}
					Expect(response.Header.Values(name)).To(Equal([]string{value}), "%s of %s %s", name, c.method, c.path)
				}
			}
		})

		It("explains empty pages", func() {
			b := w.open().enter()
			for path, text := range map[string]string{
				"/": "No keys are failing.", "/failures": "No failures in the last 14 days", "/hosts": "No keys are wanted yet",
				"/wants": "Annotate a ConfigMap", "/audit": "No actions in the last 90 days.",
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
				for _, match := range regexp.MustCompile(`href="/failures/(\d+)" data-open`).FindAllStringSubmatch(page, -1) {
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
				{"/failures/4", 404, "does not exist"},
				{"/objects/default/nothing", 404, "ConfigMap default/nothing: not found"},
				{"/nothing", 404, "There is no page"},
				{"/jobs/X", 404, "no such job"},
				{"/failures/replay?id=x", 400, "is not the ID"},
				{"/failures/replay?id=99", 404, "does not exist"},
				{"/pause?for=soon", 400, "is not a duration"},
				{"/live?failed=x", 400, "is not a number"},
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
			Expect(w.client.PublishAudit(ctx, &v1.Audit{
				Action: "replay", User: hostile, Filter: "javascript:" + hostile,
				OnBehalfOf: hostile,
			})).To(Succeed())
			b := w.open().enter()
			for _, path := range []string{
				"/", "/failures", "/failures/1", "/wants", "/audit", "/hosts", "/failures/replay?id=1",
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

		It("finds objects, hosts and failures with the search field", func(ctx SpecContext) {
			fail(ctx, 1, "a.example.com")
			b := w.open().enter()
			for q, title := range map[string]string{
				"1": "Failure 1", "default/cm-001": "default/cm-001", "a.example.com": "Failures", "cm-001": "Wanted",
				"": "Failures",
			} {
				Expect(b.page("/search?q="+url.QueryEscape(q))).To(ContainSubstring("<title>"+title+" ·"), q)
			}
		})

		It("replays the selected failures once, without later ones", func(ctx SpecContext) {
			site := newOrigin()
			for i := range 5 {
				w.failing(ctx, cm(i), site.URL+"/page")
			}
			w.forget(ctx, cm(0))
			b := w.open().enter()
			dialog := b.page("/failures/replay?host=localhost")
			Expect(dialog).To(And(ContainSubstring("Would replay 4 of 5 failures."),
				ContainSubstring("1 skipped: gone."), ContainSubstring("curlctl replay --host=localhost --rate=50/s")))
			form := b.form("/failures/replay?host=localhost")
			w.failing(ctx, cm(9), site.URL+"/page")
			site.up.Store(true)
			_, page := b.send(http.MethodPost, "/failures/replay", form, nil)
			_, again := b.send(http.MethodPost, "/failures/replay", form, nil)
			Expect(again).To(ContainSubstring("<title>Job replay"))
			w.fetch()
			Expect(b.ended(page)).To(ContainSubstring("4 fetched."))
			audit := w.ok(ctx, "audit", "-o", "json")
			Expect(strings.Count(audit, `"action": "replay"`)).To(Equal(1))
			Expect(audit).To(And(ContainSubstring(`"via": "console"`), ContainSubstring(`"done": 4`),
				ContainSubstring(`"filter": "--host=localhost"`)))
			Expect(b.page("/audit")).To(ContainSubstring("--host=localhost"))
			Expect(w.client.LastDue(ctx, cm(9))).Error().To(MatchError(pipeline.ErrNoMessage))
		})

		It("asks again if the number has changed", func(ctx SpecContext) {
			for i := range 5 {
				fail(ctx, i, "a.example.com")
			}
			b := w.open().enter()
			form := b.form("/failures/replay?host=a.example.com")
			for i := range 3 {
				w.forget(ctx, cm(i))
			}
			code, text := b.send(http.MethodPost, "/failures/replay", form, nil)
			Expect(code).To(Equal(http.StatusConflict))
			Expect(text).To(And(ContainSubstring("The number has changed"), ContainSubstring("Would replay 2 of 5")))
		})

		It("stops a job, and runs one job per person", func(ctx SpecContext) {
			for i := range 5 {
				fail(ctx, i, "a.example.com")
			}
			b := w.open().enter()
			form := b.form("/failures/replay?host=a.example.com")
			form.Set("rate", "1/h")
			_, page := b.send(http.MethodPost, "/failures/replay", form, nil)
			Expect(page).To(ContainSubstring("is running"))
			second := b.form("/failures/replay?host=a.example.com")
			code, text := b.send(http.MethodPost, "/failures/replay", second, nil)
			Expect(code).To(Equal(http.StatusConflict))
			Expect(text).To(ContainSubstring("Another job is running"))
			path := regexp.MustCompile(`/jobs/[A-Z0-9]+`).FindString(page)
			b.eventually(path).Should(ContainSubstring("requested"), "from then on there is an audit record")
			_, page = b.send(http.MethodPost, path+"/stop", nil, nil)
			Expect(b.ended(page)).To(ContainSubstring("was stopped"))
			Expect(w.ok(ctx, "audit")).NotTo(ContainSubstring("interrupted"))
		})

		It("removes the selected failures, and asks for a word if there are many", func(ctx SpecContext) {
			for i := range 102 {
				fail(ctx, i, "a.example.com")
			}
			fail(ctx, 200, "b.example.com")
			b := w.open().enter()
			form := b.form("/failures/purge?id=1&id=2")
			_, page := b.send(http.MethodPost, "/failures/purge", form, nil)
			Expect(b.ended(page)).To(ContainSubstring("is done"))
			Expect(w.failed(ctx)).To(Equal(101))
			fail(ctx, 1, "a.example.com")
			fail(ctx, 2, "a.example.com")
			form = b.form("/failures/purge?host=a.example.com")
			Expect(form.Get("count")).To(Equal("102"))
			fail(ctx, 3, "a.example.com")
			code, text := b.send(http.MethodPost, "/failures/purge", form, nil)
			Expect(code).To(Equal(http.StatusBadRequest))
			Expect(text).To(ContainSubstring("Type the word purge"))
			form.Set("word", "purge")
			_, page = b.send(http.MethodPost, "/failures/purge", form, nil)
			Expect(b.ended(page)).To(ContainSubstring("is done"))
			Expect(w.failed(ctx)).To(Equal(2), "one of the other host and one that failed later")
		})

		It("pauses and resumes, with a banner on every page", func(ctx SpecContext) {
			b := w.open().enter()
			form := b.form("/pause")
			Expect(form.Get("for")).To(Equal("1h"))
			_, page := b.send(http.MethodPost, "/pause", form, nil)
			Expect(page).To(MatchRegexp(`id="paused">`))
			Expect(w.ok(ctx, "status")).To(ContainSubstring("paused, resumes in"))
			_, page = b.send(http.MethodPost, "/resume", nil, nil)
			Expect(page).To(MatchRegexp(`id="paused" hidden>`))
			Expect(w.ok(ctx, "status")).To(MatchRegexp(`Fetching: +working`))
			Expect(w.ok(ctx, "audit")).To(And(ContainSubstring("pause"), ContainSubstring("resume")))
		})

		It("fetches an object now", func(ctx SpecContext) {
			fail(ctx, 1, "a.example.com")
			b := w.open().enter()
			form := b.form("/refetch?namespace=default&name=cm-001")
			Expect(form.Get("count")).To(Equal("1"))
			_, page := b.send(http.MethodPost, "/refetch", form, nil)
			Expect(b.ended(page)).To(ContainSubstring("is done"))
			Expect(w.client.LastDue(ctx, cm(1))).Error().NotTo(HaveOccurred())
			Expect(b.page("/refetch?namespace=default&host=a.example.com")).
				To(ContainSubstring("curlctl refetch --all --namespace=default --host=a.example.com"))
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
			once := func() {
				GinkgoHelper()
				for range 2 { // consumers
					Eventually(polled).Should(Receive(), "the poll follows the reading of the streams")
				}
			}
			once()
			later.Store(int64(20 * time.Second))
			b.page("/")
			later.Store(int64(62 * time.Second))
			once()
			later.Store(int64(86 * time.Second))
			b.page("/")
		})

		It("sends no requests after a minute without open pages", func() {
			var later, asked, last atomic.Int64
			count := func(*nats.Msg) { asked.Add(1); last.Store(time.Now().UnixNano()) }
			sub := suitetest.Must(w.js.Conn().Subscribe(">", count))
			DeferCleanup(sub.Unsubscribe)
			b := w.openAt(func() time.Time { return time.Now().Add(time.Duration(later.Load())) }).enter()
			b.page("/")
			Eventually(asked.Load).Should(BeNumerically(">", 4))
			later.Store(int64(2 * time.Minute))
			Eventually(func() time.Duration { return time.Since(time.Unix(0, last.Load())) }).
				WithTimeout(time.Minute).WithPolling(polling).
				Should(BeNumerically(">", 6*time.Second), "a poll would come every 5 s")
			before := asked.Load()
			for minute := 3; minute <= 12; minute++ {
				later.Store(int64(time.Duration(minute) * time.Minute))
				Consistently(asked.Load, "600ms").Should(Equal(before), "in minute %d", minute)
			}
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
				"curl.due.>", "curl.timer.>", "curl.record.>", "$JS.API.CONSUMER.PAUSE.>", "$JS.API.STREAM.PURGE.>",
				"$JS.API.STREAM.MSG.DELETE.>",
			} {
				sub := suitetest.Must(w.js.Conn().ChanSubscribe(subject, wire))
				DeferCleanup(sub.Unsubscribe)
			}
			b := w.as("viewer").open().enter()
			for _, path := range []string{"/", "/failures", "/failures/1", "/hosts", "/wants", "/objects/default/cm-001"} {
				page := b.page(path)
				Expect(page).NotTo(MatchRegexp(`Replay|Remove|Pause…|Resume…|Fetch now|>Fetch |type="checkbox" name`), path)
			}
			for _, path := range []string{"/failures/replay", "/failures/purge", "/refetch", "/pause", "/resume"} {
				form := url.Values{"id": {"1"}, "top": {"99"}, "count": {"1"}, "job": {strings.Repeat("A", 26)}}
				code, text := b.send(http.MethodPost, path, form, nil)
				Expect(code).To(Equal(http.StatusForbidden), path)
				Expect(text).To(ContainSubstring("viewer may not"), path)
			}
			Consistently(wire, "100ms").ShouldNot(Receive())
			Expect(b.page("/doctor")).To(ContainSubstring("viewer"))

			By("receiving the messages of an admin's forms, to prove that the subscriptions work")
			b = w.as("admin").open().enter()
			_, _ = b.send(http.MethodPost, "/pause", b.form("/pause"), nil)
			_, _ = b.send(http.MethodPost, "/failures/purge", b.form("/failures/purge?id=1"), nil)
			heard := map[string]bool{}
			Eventually(func() map[string]bool {
				for len(wire) > 0 {
					heard[(<-wire).Subject] = true
				}
				return heard
			}).Should(And(
				HaveKey(HavePrefix("curl.record.pause.")), HaveKey(HavePrefix("$JS.API.CONSUMER.PAUSE.")),
				HaveKey(HavePrefix("$JS.API.STREAM.MSG.DELETE.")),
			))
		})

		It("lets a replayer replay, but not purge or pause", func(ctx SpecContext) {
			b := w.as("replayer").open().enter()
			page := b.page("/failures")
			Expect(page).To(And(ContainSubstring("Replay selected"), Not(ContainSubstring("Remove selected"))))
			_, _ = b.send(http.MethodPost, "/failures/replay", b.form("/failures/replay?id=1"), nil)
			Eventually(func() error { _, err := w.client.LastDue(ctx, cm(1)); return err }).Should(Succeed())
			Expect(w.ok(ctx, append([]string{"audit"}, w.as("admin").connect...)...)).To(ContainSubstring("replayer"))
			code, _ := b.send(http.MethodPost, "/failures/purge", url.Values{"id": {"1"}, "top": {"1"}}, nil)
			Expect(code).To(Equal(http.StatusForbidden))
		})
	})

	It("serves read-only pages without sign-in, but only on loopback addresses", func(ctx SpecContext) {
		w = newWorld(ctx)
		fail(ctx, 1, "a.example.com")
		for _, listen := range []string{"0.0.0.0:0", ":0", "[::]:0", "192.0.2.1:0", "example.com:80"} {
			for _, auth := range []string{"none", "local"} {
				r := w.run(ctx, "console", "--auth="+auth, "--listen="+listen)
				Expect(r.code).To(Equal(2))
				Expect(r.err).To(ContainSubstring("loopback"))
			}
		}
		Expect(w.run(ctx, "console", "--auth=some").code).To(Equal(2))
		Expect(w.run(ctx, "console", "--listen=x").err).To(ContainSubstring("is not an address"))
		Expect(w.run(ctx, "console", "--tls-cert=x").err).To(ContainSubstring("must be given together"))
		b := w.open("--auth=none")
		Expect(b.page("/failures")).NotTo(ContainSubstring("Replay"))
		code, _ := b.send(http.MethodPost, "/resume", nil, nil)
		Expect(code).To(Equal(http.StatusForbidden))
		code, _ = b.send(http.MethodGet, "/", nil, func(r *http.Request) { r.Host = "evil.example.com" })
		Expect(code).To(Equal(http.StatusMisdirectedRequest))
	})

	It("authenticates and authorizes users of a cluster with the API server", func(ctx SpecContext) {
		client, _, namespace := inCluster(ctx)
		w = newWorld(ctx)
		mine := pipeline.Key{Namespace: namespace, Name: "mine", Key: "k"}
		want := w.failing(ctx, mine, "https://a.example.com/")
		fail(ctx, 1, "other.example.com")
		all, one := user(ctx, client, namespace, "all"), user(ctx, client, namespace, "one")
		none, sees := user(ctx, client, namespace, "none"), user(ctx, client, namespace, "sees")
		rule := rbacv1.PolicyRule{
			APIGroups: []string{"watch.x-kv8s.io"}, Resources: []string{"failures", "replays", "pipelines", "audits"},
			Verbs: []string{"*"},
		}
		grant(ctx, client, namespace, namespace, "all", rule)
		ref := rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: namespace}
		Expect(client.RbacV1().RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "one"}, RoleRef: ref, Subjects: []rbacv1.Subject{
				{Kind: "ServiceAccount", Namespace: namespace, Name: "one"},
				{Kind: "ServiceAccount", Namespace: namespace, Name: "sees"},
			},
		}, metav1.CreateOptions{})).Error().NotTo(HaveOccurred())
		grant(ctx, client, namespace+"-sees", namespace, "sees",
			rbacv1.PolicyRule{APIGroups: rule.APIGroups, Resources: []string{"failures"}, Verbs: []string{"get"}})

		var later atomic.Int64
		b := w.openAt(func() time.Time { return time.Now().Add(time.Duration(later.Load())) }, "--auth=kubernetes",
			"--listen=127.0.0.1:0")
		Expect(b.page("/failures")).To(ContainSubstring("Sign in"))
		code, _ := b.send(http.MethodPost, "/resume", nil, nil)
		Expect(code).To(Equal(http.StatusUnauthorized))
		code, text := b.send(http.MethodPost, "/signin", url.Values{"token": {"nonsense"}}, nil)
		Expect(code).To(Equal(http.StatusUnauthorized))
		Expect(text).To(ContainSubstring("does not accept"))

		By("signing in a user who may see everything")
		code, _ = b.send(http.MethodPost, "/signin", url.Values{"token": {all}}, nil)
		Expect(code).To(Equal(http.StatusOK))
		Expect(b.page("/failures")).To(And(ContainSubstring("<b>2</b> match"), ContainSubstring("other.example.com")))
		_, page := b.send(http.MethodPost, "/failures/replay", b.form("/failures/replay?id=1"),
			func(r *http.Request) { r.Header.Set("X-Forwarded-For", "192.0.2.7") })
		Expect(page).To(ContainSubstring("Job replay"))
		Eventually(func() string { return w.ok(ctx, "audit", "-o", "json") }).
			Should(ContainSubstring(`"onBehalfOf": "system:serviceaccount:` + namespace + `:all"`))
		u := suitetest.Must(url.Parse(b.base))
		Expect(w.ok(ctx, "audit", "-o", "json")).NotTo(Or(ContainSubstring("127.0.0.1"), ContainSubstring("192.0.2.7")),
			"addresses are not on record")
		for _, cookie := range b.client.Jar.Cookies(u) {
			Expect(cookie.Value).NotTo(ContainSubstring(all[:20]), "the token is not stored")
		}

		By("signing in a user who may see one namespace")
		_, _ = b.send(http.MethodPost, "/signout", nil, nil)
		code, text = b.send(http.MethodPost, "/signin", url.Values{"token": {one}}, nil)
		Expect(code).To(Equal(http.StatusForbidden))
		Expect(text).To(ContainSubstring("Which namespace?"))
		in := "?namespace=" + namespace
		Expect(b.page("/failures" + in)).To(And(ContainSubstring("mine"), Not(ContainSubstring("other.example.com")),
			Not(ContainSubstring("<b>2</b>"))))
		for _, path := range []string{"/", "/hosts", "/wants"} {
			Expect(b.page(path+in)).NotTo(Or(ContainSubstring("other.example.com"), ContainSubstring(`"default"`)), path)
		}
		for _, path := range []string{
			"/failures/2" + in, "/failures/77" + in, "/failures?namespace=default",
			"/objects/default/cm-001", "/failures/replay" + in + "&id=2",
		} {
			code, text = b.at(path)
			Expect(code).To(Equal(http.StatusNotFound), path)
			Expect(text).NotTo(ContainSubstring("other.example.com"))
		}
		for path, expected := range map[string]int{
			"/audit" + in: http.StatusForbidden, "/doctor" + in: http.StatusForbidden,
			"/search" + in + "&q=2": http.StatusNotFound, "/search" + in + "&q=default/cm-001": http.StatusNotFound,
			"/search" + in + "&q=cm-001": http.StatusOK,
			"/live?namespace=default":    http.StatusNotFound,
		} {
			code, text = b.at(path)
			Expect(code).To(Equal(expected), path)
			Expect(text).NotTo(Or(ContainSubstring("other.example.com"), ContainSubstring(`href="/objects/default`)), path)
		}
		code, _ = b.send(http.MethodPost, "/pause"+in, nil, nil)
		Expect(code).To(Equal(http.StatusForbidden))

		By("updating a page of that user live")
		live := liveOf(b.page("/failures" + in))
		fail(ctx, 1, "other.example.com")
		w.fail(ctx, want, v1.FailureClass_FAILURE_CLASS_TIMEOUT)
		b.eventually(live).Should(ContainSubstring(">1 new – show<"))
		Expect(b.page("/" + in)).To(And(ContainSubstring(">1 wanted keys<"), Not(ContainSubstring("other.example.com"))))
		later.Store(int64(59 * time.Minute))
		Expect(b.page("/failures" + in)).To(ContainSubstring("mine"))
		later.Store(int64(61 * time.Minute))
		Expect(b.page(live)).To(ContainSubstring("Sign in"))

		By("signing in a user who may see all namespaces and change one")
		code, _ = b.send(http.MethodPost, "/signin", url.Values{"token": {sees}}, nil)
		Expect(code).To(Equal(http.StatusOK))
		for _, path := range []string{"/failures/purge", "/failures/replay"} {
			code, text = b.at(path + in + "&id=1")
			Expect(code).To(Equal(http.StatusOK), text)
			for _, namespaces := range []string{in, "?namespace="} {
				code, _ = b.at(path + namespaces + "&id=2")
				Expect(code).To(BeElementOf(http.StatusForbidden, http.StatusNotFound), path)
			}
			form := url.Values{"id": {"2"}, "top": {"2"}, "count": {"1"}, "job": {strings.Repeat("A", 26)}}
			code, text = b.send(http.MethodPost, path+in, form, nil)
			Expect(code).To(Equal(http.StatusNotFound), text)
		}
		Expect(w.failed(ctx)).To(Equal(4))

		By("signing in a user who may see nothing")
		_, _ = b.send(http.MethodPost, "/signout", nil, nil)
		code, _ = b.send(http.MethodPost, "/signin", url.Values{"token": {none}}, nil)
		Expect(code).To(Equal(http.StatusForbidden))
		code, _ = b.at("/failures" + in)
		Expect(code).To(Equal(http.StatusNotFound))

		By("limiting sign-ins per address, whatever headers say, without limiting other addresses or signed-in users")
		_, _ = b.send(http.MethodPost, "/signin", url.Values{"token": {all}}, nil)
		refused := make(chan struct{}, 400)
		var asking sync.WaitGroup
		for i := range 400 { // concurrently, so that they exceed the burst and the refill of a second
			asking.Go(func() {
				defer GinkgoRecover()
				if code, _ := b.send(http.MethodPost, "/signin", nil, func(r *http.Request) {
					r.Header.Set("X-Forwarded-For", fmt.Sprintf("192.0.2.%d", i%250))
				}); code == http.StatusTooManyRequests {
					refused <- struct{}{}
				}
			})
		}
		asking.Wait()
		Expect(refused).NotTo(BeEmpty())
		Expect(b.page("/failures")).To(ContainSubstring("<b>4</b> match"))
		from := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
		elsewhere := &http.Client{Transport: &http.Transport{DialContext: from.DialContext, DisableKeepAlives: true}}
		code, text = read(suitetest.Must(elsewhere.PostForm(b.base+"/signin", nil)))
		Expect(code).To(Equal(http.StatusUnauthorized))
		Expect(text).To(ContainSubstring("Paste a token"))
	})
})

// grant lets a service account do something in all namespaces, until the spec ends.
func grant(ctx context.Context, client kubernetes.Interface, role, namespace, account string, rule rbacv1.PolicyRule) {
	GinkgoHelper()
	rbac := client.RbacV1()
	meta := metav1.ObjectMeta{Name: role}
	Expect(rbac.ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{rule}},
		metav1.CreateOptions{})).Error().NotTo(HaveOccurred())
	Expect(rbac.ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: account}},
	}, metav1.CreateOptions{})).Error().NotTo(HaveOccurred())
	DeferCleanup(func(ctx SpecContext) {
		Expect(rbac.ClusterRoleBindings().Delete(ctx, role, metav1.DeleteOptions{})).To(Succeed())
		Expect(rbac.ClusterRoles().Delete(ctx, role, metav1.DeleteOptions{})).To(Succeed())
	})
}

// user makes a service account, and returns a token for the console.
func user(ctx context.Context, client kubernetes.Interface, namespace, name string) string {
	GinkgoHelper()
	Expect(client.CoreV1().ServiceAccounts(namespace).Create(ctx,
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})).Error().
		NotTo(HaveOccurred())
	asked := &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{Audiences: []string{"curl-me-that-console"}},
	}
	request := suitetest.Must(client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name, asked,
		metav1.CreateOptions{}))
	return request.Status.Token
}

// liveOf returns the address that an open page polls.
func liveOf(page string) string {
	GinkgoHelper()
	match := regexp.MustCompile(`data-live="([^"]+)"`).FindStringSubmatch(page)
	Expect(match).NotTo(BeNil(), page)
	return html.UnescapeString(match[1])
}
