package fetcher_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/kv8s/curl-me-that/deploy/testkit/natstest"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/fetcher"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/process"
)

func TestFetcher(t *testing.T) { suitetest.Run(t, "Fetcher") }

var _ = BeforeSuite(suitetest.ExpectNoLeaks)

var _ = Describe("Run", func() {
	var (
		server *natstest.Server
		rt     *process.Runtime
		log    *gbytes.Buffer
		cfg    fetcher.Config
	)
	BeforeEach(func() {
		server = natstest.Broker(GinkgoTB(), natstest.Options{})
		js := natstest.Connect(GinkgoTB(), server)
		log = gbytes.NewBuffer()
		rt = &process.Runtime{
			Log: zerolog.New(log), Health: process.NewHealth(), Metrics: prometheus.NewRegistry(), NATS: js.Conn(),
			JetStream: js,
		}
		cfg = fetcher.DefaultConfig()
		cfg.Egress.AllowCIDRs = []string{"127.0.0.0/8"}
	})

	start := func(ctx context.Context) (stop func() error) {
		ctx, cancel := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() { ended <- fetcher.Run(ctx, rt, cfg) }()
		stop = sync.OnceValue(func() error { cancel(); return <-ended })
		DeferCleanup(stop)
		return stop
	}

	It("becomes ready once the streams exist, fetches, and ends on request", func(ctx SpecContext) {
		stop := start(ctx)
		Eventually(log.Contents).Should(ContainSubstring("waiting for the watcher or the setup job to create the streams"))
		Expect(rt.Health.Ready()).To(BeFalse())

		epoch := suitetest.Must(pipeline.Ensure(ctx, rt.JetStream, pipeline.Topology{}))
		Eventually(rt.Health.Ready).Should(BeTrue())
		Expect(log.Contents()).To(ContainSubstring(`"max_body":1000000,"max_payload":1048576`))

		origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, "hello ", r.Header.Get("User-Agent"))
		}))
		DeferCleanup(origin.Close)
		want := &v1.Want{Namespace: "default", Name: "cm", Key: "k", Uid: "uid", Url: origin.URL, Epoch: epoch}
		suitetest.Must(pipeline.NewClient(rt.JetStream).PublishWant(ctx, want, 0))
		stream := suitetest.Must(rt.JetStream.Stream(ctx, pipeline.Results))
		var m *jetstream.RawStreamMsg
		Eventually(func() (err error) { m, err = stream.GetMsg(ctx, 1); return err }).Should(Succeed())
		result := suitetest.Must(pipeline.DecodeResult(pipeline.KeyOf(want), m.Data))
		Expect(string(result.GetContent().GetBody())).To(HavePrefix("hello curl-me-that/"))

		Expect(stop()).To(Succeed())
	})

	It("tries denied keys again when the policy allows them", func() {
		path := filepath.Join(GinkgoT().TempDir(), "policy.yaml")
		Expect(os.WriteFile(path, []byte("policies: []"), 0o600)).To(Succeed())
		l := newLab(func(c *fetcher.Config) { c.Egress.AllowCIDRs, c.PolicyFile = nil, path })
		l.want("cm", "/ok")
		Eventually(l.Value(`curlmethat_fetcher_gets_total{outcome="AddressDenied"}`)).Should(BeEquivalentTo(1))
		policy := "policies: [{namespaces: [default], allow-cidr: [127.0.0.0/8]}]"
		Expect(os.WriteFile(path, []byte(policy), 0o600)).To(Succeed())
		Eventually(l.Value(`curlmethat_fetcher_gets_total{outcome="ok"}`)).WithTimeout(20 * time.Second).
			Should(BeEquivalentTo(1))
	})

	It("refuses to start if the messages in flight do not fit into memory", func(ctx SpecContext) {
		before := debug.SetMemoryLimit(64 << 20)
		DeferCleanup(func() { debug.SetMemoryLimit(before) })
		Expect(fetcher.Run(ctx, rt, cfg)).To(MatchError(ContainSubstring("GOMEMLIMIT")))
	})
})
