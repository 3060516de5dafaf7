package fetcher_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/spf13/pflag"

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
		Eventually(l.value(`curlmethat_fetcher_gets_total{result="AddressDenied"}`)).Should(BeEquivalentTo(1))
		policy := "policies: [{namespaces: [default], allow-cidr: [127.0.0.0/8]}]"
		Expect(os.WriteFile(path, []byte(policy), 0o600)).To(Succeed())
		Eventually(l.value(`curlmethat_fetcher_gets_total{result="ok"}`)).WithTimeout(20 * time.Second).
			Should(BeEquivalentTo(1))
	})

	It("refuses to start if the messages in flight do not fit into memory", func(ctx SpecContext) {
		before := debug.SetMemoryLimit(64 << 20)
		DeferCleanup(func() { debug.SetMemoryLimit(before) })
		Expect(fetcher.Run(ctx, rt, cfg)).To(MatchError(ContainSubstring("GOMEMLIMIT")))
	})
})

// execute runs a command line and returns its output and error.
func execute(args ...string) (string, error) {
	cmd := fetcher.Command()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetArgs(args)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err := cmd.ExecuteContext(context.Background())
	return out.String(), err
}

var _ = Describe("The command line", func() {
	It("reports an invalid flag in one sentence with its name", func() {
		for _, mistake := range []string{
			"concurrency=0", "concurrency=100000", "concurrency=many", "per-host=0",
			"namespace-share=1.5", "max-body=0", "trusted-keys=/dev/null",
			"timeout=1m", "tls-timeout=0s", "header-timeout=-1s",
			"dial-timeout=0s", "max-attempts=0", "retry-base=0s",
			"retry-max=1ms", "max-retry-after=0s", "recheck=0s", "min-refresh=0s",
			"refresh-jitter=0.5", "namespace-result-bytes=-1",
			"namespace-dead-letters=-1", "allow-cidr=everything", "deny-cidr=10.0.0.0/99",
			"allow-host=a b", "allow-port=70000",
		} {
			flag, _, _ := strings.Cut(mistake, "=")
			_, err := execute("--" + mistake)
			Expect(err).To(MatchError(ContainSubstring("--" + flag)))
			Expect(err.Error()).NotTo(ContainSubstring("\n"))
		}
	})

	It("has every flag on a page", func() {
		var pages strings.Builder
		const docs = "../deploy/docs/"
		for _, name := range []string{"README.md", docs + "egress.md", docs + "credentials.md", docs + "rules.md"} {
			pages.Write(suitetest.Must(os.ReadFile(name)))
		}
		cfg := fetcher.DefaultConfig()
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		cfg.BindFlags(flags)
		flags.VisitAll(func(f *pflag.Flag) { Expect(pages.String()).To(ContainSubstring("--" + f.Name)) })
	})

	It("takes no arguments", func() {
		_, err := execute("https://example.com")
		Expect(err).To(HaveOccurred())
	})
})

func TestPreview(t *testing.T) {
	t.Parallel()
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/" {
			http.NotFound(w, r)
			return
		}
		_, _ = io.WriteString(w, "hello")
	}))
	t.Cleanup(site.Close) // after the parallel cases
	closed, open := fetcher.DefaultConfig(), fetcher.DefaultConfig()
	open.Egress.AllowCIDRs = []string{"127.0.0.0/8"}
	for name, c := range map[string]struct {
		config  fetcher.Config
		url     string
		fetch   bool
		allowed bool
		failure string
		size    int
	}{
		"denied":     {config: closed, url: site.URL, fetch: true},
		"not in DNS": {config: closed, url: "http://nothing.example.invalid/", failure: "DNSFailed"},
		"no fetch":   {config: open, url: site.URL, allowed: true},
		"fetched":    {config: open, url: site.URL, fetch: true, allowed: true, size: 5},
		"bad status": {config: open, url: site.URL + "/none", fetch: true, allowed: true, failure: "BadStatus"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := c.config.Preview(t.Context(), fetcher.PreviewRequest{Namespace: "default", URL: c.url, Fetch: c.fetch})
			if err != nil {
				t.Fatal(err)
			}
			if got.Allowed != c.allowed || got.Failure != c.failure || got.Size != c.size || got.Reason == "" {
				t.Errorf("got %+v", got)
			}
		})
	}
}
