package curlctl_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/tools/txtar"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/kv8s/curl-me-that/deploy/curlctl"
	"github.com/kv8s/curl-me-that/deploy/curlctl/broker"
	"github.com/kv8s/curl-me-that/deploy/testkit/natstest"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/fetcher"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/process"
	"github.com/kv8s/curl-me-that/proto/weburl"
)

func TestCurlctl(t *testing.T) {
	t.Setenv("COLUMNS", "")              // the width of the terminal that runs the specs
	kubeconfig = os.Getenv("KUBECONFIG") // only inCluster uses it
	t.Setenv("KUBECONFIG", os.DevNull)
	suitetest.Run(t, "Curlctl")
}

var kubeconfig string

var _ = BeforeSuite(suitetest.ExpectNoLeaks)

func (w *world) as(user string) *world {
	as := *w
	as.connect = []string{"--nats-url", strings.Replace(w.server.URL(), "://", "://"+user+":p@", 1)}
	return &as
}

// configured runs a broker with a configuration, and creates the streams as its user app.
func configured(ctx context.Context, text string) *world {
	GinkgoHelper()
	config := filepath.Join(GinkgoT().TempDir(), "nats.conf")
	Expect(os.WriteFile(config, []byte(text), 0o600)).To(Succeed())
	s := natstest.Broker(GinkgoTB(), natstest.Options{Listen: true, ConfigFile: config})
	w := &world{server: s}
	w.use(ctx, natstest.Connect(GinkgoTB(), s, nats.UserInfo("app", "p")))
	return w.as("app")
}

// contexts creates contexts of the nats command until the spec ends.
func contexts(texts map[string]string) {
	GinkgoHelper()
	home := GinkgoT().TempDir()
	GinkgoT().Setenv("XDG_CONFIG_HOME", home)
	Expect(os.MkdirAll(filepath.Join(home, "nats", "context"), 0o700)).To(Succeed())
	for name, text := range texts {
		Expect(os.WriteFile(filepath.Join(home, "nats", "context", name+".json"), []byte(text), 0o600)).To(Succeed())
	}
}

// unreachable writes a kubeconfig of a cluster that is gone, for a user, and returns its path.
func unreachable(user string) string {
	GinkgoHelper()
	path := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
	Expect(os.WriteFile(path, []byte(`{"current-context": "a", "users": [{"name": "a", "user": `+user+`}],
		"contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
		"clusters": [{"name": "a", "cluster": {"server": "https://127.0.0.1:1"}}]}`), 0o600)).To(Succeed())
	return path
}

// world has a broker with the streams of the pipeline.
type world struct {
	server *natstest.Server
	js     jetstream.JetStream
	client *broker.Client
	epoch  int64
	// connect has the flags to connect to the broker.
	connect []string
}

func newWorld(ctx context.Context) *world {
	GinkgoHelper()
	s := natstest.Broker(GinkgoTB(), natstest.Options{Listen: true})
	w := &world{server: s, connect: []string{"--nats-url", s.URL()}}
	w.use(ctx, natstest.Connect(GinkgoTB(), s))
	return w
}

func (w *world) use(ctx context.Context, js jetstream.JetStream) {
	GinkgoHelper()
	var err error
	w.js, w.client = js, broker.NewClient(js)
	w.epoch, err = pipeline.Ensure(ctx, js, pipeline.Topology{HistoryBytes: 1 << 30})
	Expect(err).NotTo(HaveOccurred())
}

// result of a run of curlctl.
type result struct {
	out, err string
	code     int
}

// run runs curlctl with a clock 20 minutes ahead, so that ages do not change during the spec.
func (w *world) run(ctx context.Context, args ...string) result {
	later := func() time.Time { return time.Now().Add(20*time.Minute + 30*time.Second) }
	return runAs(ctx, "curlctl", later, append(args, w.connect...)...)
}

// runAs runs curlctl under the name of a program, and checks that the output cannot steer a terminal.
func runAs(ctx context.Context, program string, now func() time.Time, args ...string) result {
	GinkgoHelper()
	var out, said bytes.Buffer
	cmd := curlctl.CommandAt(program, now)
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	cmd.SetErr(&said)
	cmd.SetIn(strings.NewReader(""))
	r := result{code: process.Run(ctx, cmd)}
	r.out, r.err = out.String(), said.String()
	Expect(control(r.out)).To(BeEmpty(), "%v", args)
	Expect(control(r.err)).To(BeEmpty(), "%v", args)
	return r
}

// ok runs curlctl, which must succeed, and returns its output.
func (w *world) ok(ctx context.Context, args ...string) string {
	GinkgoHelper()
	r := w.run(ctx, args...)
	Expect(r.code).To(BeZero(), "%s\n%s", r.out, r.err)
	return r.out
}

// offered is a body that waits for approval and was never written.
const offered = "offered"

// history adds versions of a key to the history, oldest first.
func (w *world) history(ctx context.Context, key pipeline.Key, bodies ...string) {
	GinkgoHelper()
	archive := suitetest.Must(w.client.Archive(func(err error) { Expect(err).NotTo(HaveOccurred()) }))
	for _, body := range bodies {
		digest, url := pipeline.Digest(body), "https://a.example.com/"+strings.ToValidUTF8(body, "")
		archive.Keep(ctx, key, &v1.Version{
			Sha256: digest, Size: int64(len(body)), Url: url, Available: body == offered,
		}, []byte(body), digest)
	}
	Eventually(ctx, func() ([]*v1.Version, error) { return w.client.Versions(ctx, key) }).Should(HaveLen(len(bodies)))
}

// want publishes a want, and returns it with its sequence.
func (w *world) want(ctx context.Context, key pipeline.Key, url string, change ...func(*v1.Want)) (*v1.Want, uint64) {
	GinkgoHelper()
	want := &v1.Want{
		Namespace: key.Namespace, Name: key.Name, Key: key.Key, Uid: "uid-of-" + key.Name, ResourceVersion: "7",
		Url: url, Epoch: w.epoch, Cause: v1.Cause_CAUSE_NEW,
	}
	for _, c := range change {
		c(want)
	}
	_, last, err := w.client.LastWant(ctx, key)
	if !errors.Is(err, pipeline.ErrNoMessage) {
		Expect(err).NotTo(HaveOccurred())
	}
	return want, suitetest.Must(w.client.PublishWant(ctx, want, last))
}

// forget publishes a tombstone.
func (w *world) forget(ctx context.Context, key pipeline.Key) {
	GinkgoHelper()
	_, last, err := w.client.LastWant(ctx, key)
	Expect(err).NotTo(HaveOccurred())
	Expect(w.client.PublishTombstone(ctx, key, last)).Error().NotTo(HaveOccurred())
}

// fill adds three wants, two timers and a failure.
func (w *world) fill(ctx context.Context) {
	GinkgoHelper()
	w.timed(ctx, cm(1), "https://a.example.com/page?token=secret", &v1.Due{Cause: v1.Cause_CAUSE_REFRESH},
		50*time.Minute+40*time.Second, func(w *v1.Want) { w.Refresh = durationpb.New(10 * time.Minute) })
	b := w.timed(ctx, cm(2), "https://b.example.com/", &v1.Due{Cause: v1.Cause_CAUSE_RETRY, Attempts: 3},
		40*time.Minute+40*time.Second)
	w.want(ctx, pipeline.Key{Namespace: "shop", Name: "prices", Key: "k"}, "https://c.example.com/")
	w.fail(ctx, b, v1.FailureClass_FAILURE_CLASS_TIMEOUT)
	w.backlog(ctx, 3)
}

// failedTraceparent is the trace context of failed attempts.
const failedTraceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// timed publishes a want, and sets its timer like a fetcher.
func (w *world) timed(
	ctx context.Context, key pipeline.Key, url string, due *v1.Due, in time.Duration, change ...func(*v1.Want),
) *v1.Want {
	GinkgoHelper()
	due.Want, due.WantSequence = w.want(ctx, key, url, change...)
	Expect(w.client.SetTimer(ctx, due, time.Now().Add(in))).Error().NotTo(HaveOccurred())
	return due.GetWant()
}

// failing publishes a want and its failure.
func (w *world) failing(ctx context.Context, key pipeline.Key, url string) *v1.Want {
	GinkgoHelper()
	want, _ := w.want(ctx, key, url)
	w.fail(ctx, want, v1.FailureClass_FAILURE_CLASS_TIMEOUT)
	return want
}

// fail publishes a failure of a want, like a fetcher.
func (w *world) fail(ctx context.Context, want *v1.Want, class v1.FailureClass) {
	GinkgoHelper()
	now := timestamppb.Now()
	letter := &v1.DeadLetter{
		Want: want, LastFailedAt: now, Traceparent: failedTraceparent,
		Failure: &v1.Failure{
			Class: class, Host: weburl.HostOf(want.GetUrl()), Attempts: 6, FirstFailedAt: now, GaveUp: true,
		},
	}
	if class == v1.FailureClass_FAILURE_CLASS_BAD_STATUS {
		letter.Failure.StatusCode, letter.Snippet = 503, []byte("<h1>down for\x1b[31m maintenance</h1>\nback soon")
	}
	id := fmt.Sprint(want.GetName(), want.GetKey(), time.Now().UnixNano())
	Expect(w.client.PublishDeadLetter(ctx, pipeline.KeyOf(want), letter, id)).To(Succeed())
}

// backlog waits until n messages are pending for the fetchers, which takes a moment after publishing.
func (w *world) backlog(ctx context.Context, n int) {
	GinkgoHelper()
	Eventually(func() (uint64, error) {
		consumer, err := w.js.Consumer(ctx, pipeline.Requests, pipeline.FetcherConsumer)
		if err != nil {
			return 0, err
		}
		return consumer.CachedInfo().NumPending, nil
	}).Should(BeEquivalentTo(n))
}

// failed returns the number of failures.
func (w *world) failed(ctx context.Context) int {
	GinkgoHelper()
	return broker.Total(suitetest.Must(w.client.CountDeadLetters(ctx, broker.DeadLetterFilter{})))
}

// fetch runs a real fetcher until the spec ends or stop is called.
func (w *world) fetch() (stop func()) {
	GinkgoHelper()
	cfg := fetcher.DefaultConfig()
	cfg.Egress.AllowCIDRs = []string{"127.0.0.0/8"}
	cfg.Engine.MaxAttempts, cfg.Engine.Retry.Base = 2, 50*time.Millisecond
	dial := func(o *nats.Options) error { return cmp.Or(w.server.Dial()(o), nats.UserInfo("app", "p")(o)) }
	return suitetest.Serve("fetcher", dial, func(ctx context.Context, rt *process.Runtime) error {
		return fetcher.Run(ctx, rt, cfg)
	}).Stop
}

// origin is a web server. It responds with 503 until it is up, and with 429 and a pause of an hour while it is busy.
type origin struct {
	*httptest.Server
	up   atomic.Bool
	busy atomic.Bool
	gets atomic.Int32
}

func newOrigin() *origin {
	o := new(origin)
	o.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		o.gets.Add(1)
		if o.busy.Load() {
			w.Header().Set("Retry-After", "3600")
			http.Error(w, "busy", http.StatusTooManyRequests)
			return
		}
		if !o.up.Load() {
			http.Error(w, "down", http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, "body of "+r.URL.Path)
	}))
	DeferCleanup(o.Close)
	o.URL = strings.Replace(o.URL, "127.0.0.1", "localhost", 1)
	return o
}

func cm(n int) pipeline.Key {
	return pipeline.Key{Namespace: "default", Name: fmt.Sprintf("cm-%03d", n), Key: "my.data"}
}

var (
	times = regexp.MustCompile(`\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?( UTC|Z)`)
	ports = regexp.MustCompile(`(127\.0\.0\.1|localhost):\d+`)
)

// flat joins the words of a text with single spaces.
func flat(text string) string { return strings.Join(strings.Fields(text), " ") }

// golden compares output with a part of a file. UPDATE_GOLDEN=1 writes it.
func golden(name, printed string) {
	GinkgoHelper()
	const path = "testdata/golden.txtar"
	printed = times.ReplaceAllString(printed, "2026-01-31 12:00:00 UTC")
	printed = ports.ReplaceAllString(printed, "$1:4222")
	all := suitetest.Must(txtar.ParseFile(path))
	at := slices.IndexFunc(all.Files, func(f txtar.File) bool { return f.Name == name })
	Expect(at).To(BeNumerically(">=", 0), "%s has no part %s", path, name)
	if os.Getenv("UPDATE_GOLDEN") != "" {
		all.Files[at].Data = []byte(printed)
		Expect(os.WriteFile(path, txtar.Format(all), 0o644)).To(Succeed())
	}
	Expect(printed).To(Equal(string(all.Files[at].Data)), "UPDATE_GOLDEN=1 go test writes %s of %s", name, path)
}
