package console_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/kv8s/curl-me-that/deploy/curlctl/broker"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/origin"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/deploy/testkit/kubetest"
	"github.com/kv8s/curl-me-that/deploy/testkit/natstest"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

var _ = Describe("In a browser, a failure", func() {
	var (
		w    *world.World
		site *origin.Page
		cm   *world.ConfigMap
		t    *tab
	)
	BeforeEach(func(ctx SpecContext) {
		w = env.World(ctx, world.Options{})
		site = w.Origin.Page("/prices")
		cm = w.Create(ctx, "prices", world.Asking("list="+site.URL()))
		cm.EventuallyHasEvents(ctx, "BadStatus")
		t = newTab(open(ctx, w.NATS.URL(), "--kubeconfig="+w.Cluster.Kubeconfig))
		Eventually(func() string { return t.text(".boxes dd") }).WithPolling(50 * time.Millisecond).Should(Equal("1"))
		site.Says("list of prices")
	})
	shouldBeFixed := func(ctx context.Context) {
		GinkgoHelper()
		t.sees("Replayed 1 of 1 failure.")
		cm.EventuallyHasData(ctx, "list", "list of prices")
		t.visit("/objects/" + w.Namespace + "/prices")
		Eventually(func() string { t.visit("/objects/" + w.Namespace + "/prices"); return t.text("section .state") }).
			WithPolling(100 * time.Millisecond).Should(ContainSubstring("ok"))
		t.sees("written")
	}

	It("can be found and fixed by mouse, starting from the red number", func(ctx SpecContext) {
		t.click(".alert h2 a")
		t.sees("failing")
		t.visit("/wants?state=failing&namespace=" + w.Namespace) // other specs may use the cluster, too
		t.sees("BadStatus 404")
		t.click("tbody th a")
		t.sees("responded with 404")
		t.click("[data-replay]")
		t.sees("Would replay 1 of 1 failure.")
		t.click("button.main")
		shouldBeFixed(ctx)
	})

	It("can be found and fixed by keyboard", func(ctx SpecContext) {
		t.live()
		t.keys("g", "f")
		t.sees("BadStatus 404")
		t.live()
		t.keys("j", "x")
		Expect(t.script(`document.querySelector('input[name=id]').checked`)).To(Equal("true"))
		t.keys("x", kb.Enter)
		t.sees("First failure")
		t.live()
		t.keys("r")
		t.sees("Would replay 1 of 1 failure.")
		Eventually(func() string { return t.script(`document.activeElement.matches('button.main')`) }).Should(Equal("true"))
		t.keys(kb.Enter)
		shouldBeFixed(ctx)
	})
})

var _ = Describe("In a browser, the console", func() {
	var (
		server *natstest.Server
		js     jetstream.JetStream
	)
	BeforeEach(func() {
		var err error
		server = suitetest.Must(natstest.Run(natstest.Options{Listen: true}))
		DeferCleanup(server.Close)
		var closeConn func()
		js, closeConn, err = server.JetStream()
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(closeConn)
	})
	pages := []string{
		"/", "/failures", "/failures/1", "/failures/61", "/wants",
		"/objects/team-1/catalog-0001", "/doctor", "/help",
		"/failures/replay?host=slow.example.com", "/failures/replay?id=61", "/refetch",
		"/failures?name=%3Cscript%3Ewindow.ran=1%3C/script%3E", "/nothing",
	}
	const hostile = "<script>window.ran=1</script>\"><img src=x onerror=window.ran=1>\u202ejavascript:window.ran=1"
	fillLong := func(ctx context.Context) {
		GinkgoHelper()
		fill(ctx, js, 120, 60)
		long := pipeline.Key{
			Namespace: strings.Repeat("n", 63), Name: strings.Repeat("قائمة-", 30) + hostile,
			Key: strings.Repeat("k", 200) + hostile,
		}
		host := strings.Repeat("long.", 40) + "example.com" + hostile
		want := &v1.Want{
			Namespace: long.Namespace, Name: long.Name, Key: long.Key, Uid: "u",
			Url: "https://" + host + "/" + strings.Repeat("page", 200) + hostile,
		}
		client := broker.NewClient(js)
		suitetest.Must(client.PublishWant(ctx, want, 0))
		Expect(client.PublishDeadLetter(ctx, long, &v1.DeadLetter{
			Want:    want,
			Failure: &v1.Failure{Class: v1.FailureClass_FAILURE_CLASS_BAD_STATUS, StatusCode: 503, Host: host},
			Snippet: []byte(strings.Repeat("<عنوان>", 100) + hostile),
		}, "long")).To(Succeed())
	}

	It("fits each page on all screens, is accessible by axe-core in both themes, and executes no scripts of tenants and "+
		"servers", func(ctx SpecContext) {
		axe := accessible()
		fillLong(ctx)
		namespace := env.Cluster.Namespace(ctx)
		watchers := kubetest.Watchers(ctx, GinkgoTB(), env.Cluster.Config).In(namespace)
		suitetest.Must(kubetest.ApplyWatcher(ctx, watchers, "rules", "configData: {LEVEL: warn}"))
		t := newTab(open(ctx, server.URL(), "--kubeconfig="+env.Cluster.Kubeconfig))
		for _, path := range append([]string{"/objects/" + namespace + "/rules"}, pages...) {
			t.do(chromedp.EmulateViewport(320, 700))
			t.visit(path)
			Expect(t.script(`document.documentElement.scrollWidth`)).To(Equal("320"), "%s at 320 px", path)
			Expect(t.script(`window.ran`)).To(Equal("undefined"), path)
			Expect(t.script(`[...document.querySelectorAll('main .name')].filter((e) => e.scrollWidth > `+
				`e.clientWidth || e.closest('[data-label]') && e.offsetLeft < 100).length`)).
				To(Equal("0"), "%s at 320 px: truncated names, and the rest of the column", path)
			for _, width := range []int64{1024, 1100, 3840, 1280} {
				t.do(chromedp.EmulateViewport(width, 800))
				Expect(t.script(`document.documentElement.scrollWidth`)).To(Equal(strconv.FormatInt(width, 10)), path)
			}
			t.do(scheme("light"))
			Expect(t.violations(axe, `['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa']`)).To(BeEmpty(), path)
			t.do(scheme("dark")) // it differs in colors only
			Expect(t.violations(axe, `{type: 'rule', values: ['color-contrast', 'link-in-text-block']}`)).
				To(BeEmpty(), "%s, dark", path)
		}
	})

	It("counts new failures in two tabs without moving rows under the pointer", func(ctx SpecContext) {
		fill(ctx, js, 6, 3)
		first := newTab(open(ctx, server.URL()))
		first.visit("/failures")
		second := newTab(first.base + "/failures")
		top := first.text("tbody tr th")
		client := broker.NewClient(js)
		failed := suitetest.Must(client.DeadLetter(ctx, 1))
		failed.Key.Name += hostile
		failed.Message.Failure.Host += hostile
		for _, t := range []*tab{first, second} {
			t.live()
		}
		Expect(client.PublishDeadLetter(ctx, failed.Key, failed.Message, "again")).To(Succeed())
		for _, t := range []*tab{first, second} {
			t.sees("1 new – show")
		}
		Expect(first.text("tbody tr th")).To(Equal(top))
		first.keys("n")
		Eventually(func() string { return first.text("tbody tr th") }).WithPolling(50 * time.Millisecond).Should(Equal("4"))
		Expect(first.text("tbody tr")).To(ContainSubstring("<script>"))
		Expect(first.script(`window.ran`)).To(Equal("undefined"), "in a row that came live")
	})

	It("shows a banner and the last numbers while the broker is down", func(ctx SpecContext) {
		fill(ctx, js, 6, 3)
		t := newTab(open(ctx, server.URL()))
		t.sees("in the last hour")
		t.script(`window.same = 1`)
		server.Stop()
		t.sees("Lost the connection to NATS, reconnecting. The numbers are from ")
		Consistently(func(g Gomega) {
			g.Expect(t.script(`document.querySelector('#lost').hidden`)).To(Equal("false"))
			g.Expect(t.text(".alert .big")).To(Equal("3"), "the last numbers stay")
			g.Expect(t.script(`getComputedStyle(document.querySelector('.pipeline')).visibility`)).
				To(Equal("hidden"), "the state of the pipeline is unknown")
		}, "3s", "1s").Should(Succeed())
		Expect(server.Start()).To(Succeed())
		back := time.Now()
		Eventually(func() string { return t.script(`document.querySelector('#lost').hidden`) }).
			WithPolling(50 * time.Millisecond).Should(Equal("true"))
		AddReportEntry("the banner is gone after", time.Since(back).String())
		Expect(t.script(`window.same`)).To(Equal("1"), "the page was not reloaded")
	})

	It("has screenshots of less than 150 KB, also in the documentation", func(ctx SpecContext) {
		fill(ctx, js, 840, 18)
		work(ctx, js)
		t := newTab(open(ctx, server.URL()))
		for _, p := range []struct{ name, path, theme string }{
			{"console-overview", "/", "light"},
			{"console-failures", "/failures", "light"},
			{"console-overview-dark", "/", "dark"},
		} {
			kept := filepath.Join("..", "..", "docs", p.name+".png")
			t.do(scheme(p.theme), chromedp.EmulateViewport(1180, 600))
			t.visit(p.path)
			t.live()
			picture := suitetest.Must(chromedp.Run(t.ctx, chromedp.CaptureScreenshot()))
			size := And(BeNumerically(">", 10_000), BeNumerically("<", 150_000))
			Expect(len(picture)).To(size, p.name)
			if os.Getenv("UPDATE_PICTURES") != "" {
				Expect(os.WriteFile(kept, picture, 0o644)).To(Succeed())
			}
			file := suitetest.Must(os.Stat(kept))
			Expect(file.Size()).To(size, kept)
		}
	})
})

// fill publishes wants with their timers, and a dead letter for each of the first ones, as after a bad night.
func fill(ctx context.Context, js jetstream.JetStream, keys, failures int) {
	GinkgoHelper()
	epoch := suitetest.Must(pipeline.Ensure(ctx, js, pipeline.Topology{}))
	client := broker.NewClient(js)
	hosts := []string{"slow.example.com", "api.shop.example", "prices.example.net", "cdn.example.org"}
	classes := []v1.FailureClass{
		v1.FailureClass_FAILURE_CLASS_TIMEOUT, v1.FailureClass_FAILURE_CLASS_BAD_STATUS,
		v1.FailureClass_FAILURE_CLASS_TIMEOUT,
		v1.FailureClass_FAILURE_CLASS_TLS_FAILED, v1.FailureClass_FAILURE_CLASS_DNS_FAILED,
	}
	for i := range keys {
		key := pipeline.Key{Namespace: fmt.Sprintf("team-%d", i%7), Name: fmt.Sprintf("catalog-%04d", i), Key: "prices.json"}
		host, class := hosts[min(i*i%11/3, 3)], classes[i*i%5]
		want := &v1.Want{
			Namespace: key.Namespace, Name: key.Name, Key: key.Key, Uid: "uid-" + key.Name,
			Url:   "https://" + host + "/v1/" + key.Name,
			Epoch: epoch, Cause: v1.Cause_CAUSE_NEW, Refresh: durationpb.New(10 * time.Minute),
		}
		sequence := suitetest.Must(client.PublishWant(ctx, want, 0))
		due := &v1.Due{Want: want, WantSequence: sequence, Cause: v1.Cause_CAUSE_REFRESH}
		if i < failures && i%6 != 5 {
			due.Cause, due.Reported, due.Attempts = v1.Cause_CAUSE_RETRY, class, 6
			due.FirstFailedAt = timestamppb.New(time.Now().Add(-time.Duration(i%50) * time.Minute))
		}
		Expect(client.SetTimer(ctx, due, time.Now().Add(time.Duration(600+i*37%3600)*time.Second))).Error().
			NotTo(HaveOccurred())
		if i < failures {
			letter := &v1.DeadLetter{
				Want: want, LastFailedAt: timestamppb.Now(),
				Failure: &v1.Failure{Class: class, Host: host, Attempts: 6, FirstFailedAt: due.GetFirstFailedAt(), GaveUp: true},
			}
			if class == v1.FailureClass_FAILURE_CLASS_BAD_STATUS {
				letter.Failure.StatusCode, letter.Snippet = http.StatusServiceUnavailable, []byte("<h1>Back soon</h1>")
			}
			Expect(client.PublishDeadLetter(ctx, key, letter, strconv.Itoa(i))).To(Succeed())
		}
	}
}

// work reads messages like two fetchers and two writers, until the spec ends. Some stay in flight.
func work(ctx context.Context, js jetstream.JetStream) {
	GinkgoHelper()
	for stream, name := range map[string]string{
		pipeline.Requests: pipeline.FetcherConsumer, pipeline.Results: pipeline.WriterConsumer,
	} {
		for range 2 {
			consumer := suitetest.Must(js.Consumer(ctx, stream, name))
			reading := suitetest.Must(consumer.Consume(func(m jetstream.Msg) {
				if about, err := m.Metadata(); err == nil && about.Sequence.Consumer%80 != 0 {
					_ = m.Ack()
				}
			}, jetstream.PullMaxMessages(50)))
			DeferCleanup(reading.Stop)
		}
		Eventually(ctx, func(g Gomega) {
			consumer, err := js.Consumer(ctx, stream, name)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(consumer.CachedInfo().NumPending).To(BeZero())
		}).Should(Succeed())
	}
}
