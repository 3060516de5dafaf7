package engine_test

import (
	"context"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/fetcher/internal/egress"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

var _ = Describe("A key that failed under other settings", func() {
	const keys = 5
	var (
		old *fetcher
		o   *origin
	)
	denying := func(o *fetcherOptions) { o.egress = egress.Config{} }
	BeforeEach(func() {
		old = w.fetcher(denying)
		o = serve(says("hello there"))
	})
	denied := func(namespace string, change ...func(*v1.Want)) (all []pipeline.Key) {
		GinkgoHelper()
		all = w.publishMany(o, keys, namespace, change...)
		for _, k := range all {
			old.step()
			Expect(w.timerOf(k).GetReported()).To(Equal(v1.FailureClass_FAILURE_CLASS_ADDRESS_DENIED))
			Expect(w.timerOf(k).at.Sub(w.clock.Now())).To(BeNumerically(">", 10*time.Minute))
		}
		return all
	}
	pauses := func(all []pipeline.Key) (found []time.Duration) {
		for _, k := range all {
			found = append(found, w.timerOf(k).at.Sub(w.clock.Now()))
		}
		return found
	}

	It("is tried again within a minute, paced by namespace, once by all fetchers", func() {
		a, b := denied("a"), denied("b", every(time.Hour))
		var resumed [3]int
		var group sync.WaitGroup
		for i := range resumed {
			f := w.fetcher(func(o *fetcherOptions) { // no two clocks are the same
				o.clock = clockOf(func() time.Time { return w.clock.Now().Add(time.Duration(i)) })
			})
			group.Go(func() { defer GinkgoRecover(); resumed[i] = suitetest.Must(f.RetryChanged(w.ctx)) })
		}
		group.Wait()
		Expect(resumed[0]+resumed[1]+resumed[2]).To(Equal(2*keys), "the first one sets the timer")
		for _, pause := range append(pauses(a), pauses(b)...) {
			Expect(pause).To(BeNumerically("<", keys*40*time.Millisecond))
			Expect(pause.Round(time.Microsecond)%(40*time.Millisecond)).To(BeZero(), "each key has its own time")
		}

		f := w.fetcher()
		w.fire(w.timerOf(a[0]).Due)
		f.step()
		Expect(w.lastResult().GetContent()).NotTo(BeNil())
		Expect(suitetest.Must(f.RetryChanged(w.ctx))).To(BeZero())
	})

	It("is left to its timer if the settings are the same, or fail it again", func() {
		all := denied("a")
		Expect(suitetest.Must(w.fetcher(denying).RetryChanged(w.ctx))).To(BeZero(), "another fetcher with the same policy")
		other := w.fetcher(func(o *fetcherOptions) { o.egress = egress.Config{AllowCIDRs: []string{"10.0.0.0/8"}} })
		Expect(suitetest.Must(other.RetryChanged(w.ctx))).To(Equal(keys))
		for _, k := range all {
			w.fire(w.timerOf(k).Due)
			other.step()
		}
		Expect(suitetest.Must(other.RetryChanged(w.ctx))).To(BeZero())
		Expect(pauses(all)).To(HaveEach(BeNumerically(">", 10*time.Minute)))
	})

	DescribeTable("is tried again after a change of its credentials if the server responds with",
		func(respond http.HandlerFunc, want int) {
			w.fetcher().fetch(w.want(serve(respond).URL))
			resumed := func(entry string) int {
				headers := writeFile("headers.yaml", []byte("- {host: 127.0.0.1, headers: {Authorization: s3cret}, "+entry+"}"))
				return suitetest.Must(w.fetcher(func(o *fetcherOptions) { o.get.HeaderFile = headers }).RetryChanged(w.ctx))
			}
			Expect(resumed("namespaces: [b]")).To(BeZero(), "the credentials of another namespace")
			Expect(resumed("namespaces: [default], schemes: [http]")).To(Equal(want))
		},
		Entry("401", fails(http.StatusUnauthorized), 1),
		Entry("403", fails(http.StatusForbidden), 1),
		Entry("404", fails(http.StatusNotFound), 1),
		Entry("410", fails(http.StatusGone), 0),
		Entry("403 and Retry-After", retryLater(http.StatusForbidden, "1800"), 0),
	)

	It("is tried again after a change of the authorities if TLS failed", func() {
		server := httptest.NewTLSServer(says("hello there"))
		DeferCleanup(server.Close)
		once := func(o *fetcherOptions) { o.config.MaxAttempts = 1 }
		w.fetcher(once).fetch(w.want(server.URL))
		Expect(w.timer().GetReported()).To(Equal(v1.FailureClass_FAILURE_CLASS_TLS_FAILED))
		bundle := writeFile("ca.pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
		f := w.fetcher(once, func(o *fetcherOptions) { o.get.CABundle = bundle })
		Expect(suitetest.Must(f.RetryChanged(w.ctx))).To(Equal(1))
		w.fire(w.timer().Due)
		f.step()
		Expect(w.lastResult().GetContent()).NotTo(BeNil())
	})

	It("is not looked for all the time if files change all the time, such as tokens", func(ctx SpecContext) {
		var scans atomic.Int32
		Expect(w.js.Conn().Subscribe("$JS.API.DIRECT.GET."+pipeline.Requests, func(*nats.Msg) { scans.Add(1) })).
			Error().NotTo(HaveOccurred())
		Expect(w.js.Conn().Flush()).To(Succeed())
		changed := make(chan struct{})
		close(changed)
		f, ended := w.fetcher(), make(chan struct{})
		resuming, stop := context.WithCancel(ctx)
		go func() { defer close(ended); f.RetryOnChange(resuming, changed) }()
		DeferCleanup(func() { stop(); <-ended })
		Eventually(scans.Load).Should(BeEquivalentTo(4))
		Consistently(scans.Load).Should(BeEquivalentTo(4))
	})
})
