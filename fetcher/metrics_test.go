package fetcher_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/kv8s/curl-me-that/deploy/testkit/natstest"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/fetcher"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/process"
)

// lab is a running fetcher with a broker and a web server.
type lab struct {
	*suitetest.Service
	server *natstest.Server
	client *pipeline.Client
	epoch  int64
	// origin is the URL of the web server.
	origin string
	// release ends the hanging requests.
	release func()
}

// serve starts the web server.
func (l *lab) serve() {
	GinkgoHelper()
	held := make(chan struct{})
	l.release = sync.OnceFunc(func() { close(held) })
	mux := http.NewServeMux()
	mux.HandleFunc("/ok", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"1"`)
		if r.Header.Get("If-None-Match") != "" {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		fmt.Fprint(w, "hello")
	})
	mux.HandleFunc("/busy", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "60")
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	mux.HandleFunc("/hang", func(http.ResponseWriter, *http.Request) { <-held })
	origin := httptest.NewServer(mux)
	DeferCleanup(origin.Close)
	DeferCleanup(l.release)
	l.origin = origin.URL
}

// want publishes a want for a URL or for a path of the web server.
func (l *lab) want(name, url string, change ...func(*v1.Want)) {
	GinkgoHelper()
	if strings.HasPrefix(url, "/") {
		url = l.origin + url
	}
	want := &v1.Want{
		Namespace: "default", Name: name, Key: "k", Uid: "uid-" + name, Url: url, Epoch: l.epoch, Cause: v1.Cause_CAUSE_NEW,
	}
	for _, c := range change {
		c(want)
	}
	suitetest.Must(l.client.PublishWant(GinkgoTB().Context(), want, 0))
}

// newLab waits until the fetcher is ready.
func newLab(change func(*fetcher.Config)) *lab {
	GinkgoHelper()
	l := new(lab)
	var js jetstream.JetStream
	l.server, js, l.epoch = natstest.Ensured(GinkgoTB(), pipeline.Topology{})
	l.client = pipeline.NewClient(js)
	cfg := fetcher.DefaultConfig()
	cfg.Egress.AllowCIDRs = []string{"127.0.0.0/8"}
	cfg.Engine.Sharing.Window = time.Minute
	cfg.Engine.Refresh.Min = 100 * time.Millisecond
	if change != nil {
		change(&cfg)
	}
	l.Service = suitetest.Serve("fetcher", l.server.Dial(), func(ctx context.Context, rt *process.Runtime) error {
		return fetcher.Run(ctx, rt, cfg)
	})
	l.serve()
	Eventually(l.Health.Ready).Should(BeTrue())
	return l
}

func refreshed(w *v1.Want) { w.Refresh = durationpb.New(300 * time.Millisecond) }

// move is an action that increases series.
type move struct {
	series []string
	do     func(*lab)
	change func(*fetcher.Config)
}

// moves has an action for each metric.
func moves() []move {
	ask := func(path string, change ...func(*v1.Want)) func(*lab) {
		return func(l *lab) { l.want("cm", path, change...) }
	}
	const own = "curlmethat_fetcher_"
	hang := func(l *lab) {
		l.want("cm", "/hang")
		Eventually(l.Value(own + "in_flight_messages")).Should(BeNumerically(">=", 1))
	}
	oneSlot := func(c *fetcher.Config) { c.Throttle.PerHost = 1 }
	queue := func(l *lab) {
		hang(l)
		Eventually(l.Value(own+`hosts{state="active"}`)).Should(BeNumerically(">", 0), "the only slot is taken")
		l.want("two", "/ok")
	}
	return []move{
		{do: ask("/ok"), series: []string{
			own + `messages_total{outcome="content"}`, own + `gets_total{outcome="ok"}`, own + "body_bytes",
			own + `get_duration_seconds{phase="connect"}`, own + `get_duration_seconds{phase="first_byte"}`,
			own + `get_duration_seconds{phase="transfer"}`,
		}},
		{do: ask("/ok", refreshed), series: []string{
			own + `messages_total{outcome="unmodified"}`, own + "refresh_delay_seconds",
		}},
		{do: ask("/missing"), series: []string{
			own + `messages_total{outcome="gave_up"}`, own + `gets_total{outcome="BadStatus"}`,
			own + `get_duration_seconds{phase="total"}`, own + `dead_letters_total{reason="BadStatus"}`,
		}},
		{do: ask("/busy"), series: []string{
			own + `messages_total{outcome="retry"}`, own + "retries_total", own + `hosts{state="paused"}`,
		}},
		{do: ask("http://127.0.0.1:9/"), series: []string{own + `gets_total{outcome="ConnectFailed"}`}},
		{
			do: ask("/ok", refreshed), series: []string{own + "not_modified_total"},
			change: func(c *fetcher.Config) { c.Engine.Sharing.Window = 0 },
		},
		{do: func(l *lab) { l.want("one", "/ok"); l.want("two", "/ok") }, series: []string{own + "coalesced_total"}},
		{do: queue, change: oneSlot, series: []string{
			own + `parked_total{waits_for="host"}`, own + `hosts{state="queued"}`, own + "queued_keys",
		}},
		{
			series: []string{own + `claims_total{outcome="won"}`}, change: oneSlot,
			do: func(l *lab) {
				hang(l)
				for i := range 20 {
					l.want(fmt.Sprint("waiting-", i), fmt.Sprint("/ok?", i))
				}
				Eventually(l.Value(own + `parked_total{waits_for="host"}`)).Should(BeNumerically(">=", 10))
				l.release()
			},
		},
		{do: ask("http://10.1.2.3/"), series: []string{
			own + `dead_letters_total{reason="AddressDenied"}`, own + `denials_total{rule="address"}`,
		}},
		{
			series: []string{own + "dead_letters_dropped_total"},
			change: func(c *fetcher.Config) { c.Engine.DeadLetters.Burst = 1 },
			do:     func(l *lab) { l.want("one", "/missing"); l.want("two", "/missing") },
		},
		{do: ask("ftp://data.example.com/"), series: []string{own + `denials_total{rule="scheme"}`}},
		{do: hang, series: []string{own + "in_flight_messages", own + `hosts{state="active"}`}},
		{
			series: []string{own + `publish_failures_total{reason="broker"}`},
			do:     func(l *lab) { hang(l); l.server.Stop(); l.release() },
		},
	}
}

// limit is the only series that no action moves.
const limit = "curlmethat_fetcher_in_flight_limit_messages"

var _ = Describe("The metrics of a fetcher", func() {
	for _, m := range moves() {
		It("increase: "+strings.Join(m.series, ", "), func() {
			l, before := newLab(m.change), map[string]float64{}
			for _, series := range m.series {
				before[series], _ = l.Value(series)() // 0 if it does not exist yet
			}
			m.do(l)
			for series, value := range before {
				Eventually(l.Value(series)).Should(BeNumerically(">", value), series)
			}
		})
	}

	It("show the maximum number of messages in flight", func() {
		l := newLab(func(c *fetcher.Config) { c.Throttle.Slots = 7 })
		Expect(l.Value(limit)()).To(BeEquivalentTo(7))
	})

	It("have a spec each", func() {
		series := []string{limit}
		for _, m := range moves() {
			series = append(series, m.series...)
		}
		Expect(suitetest.UnnamedMetrics(fetcher.Metrics(), series)).To(BeEmpty())
	})

	It("follow the conventions and have only the labels and values of their definitions, for any host", func() {
		l := newLab(nil)
		for i, path := range []string{"/ok", "/missing", "/busy", "http://10.1.2.3/"} {
			l.want(fmt.Sprint("cm-", i), path)
		}
		Eventually(l.Value("curlmethat_fetcher_messages_total")).Should(BeEquivalentTo(4))
		Expect(suitetest.MetricProblems(l.Metrics, append(process.Metrics("fetcher"), fetcher.Metrics()...))).To(BeEmpty())
	})
})
