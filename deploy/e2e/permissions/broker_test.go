// Package permissions runs the shipped NATS configuration and compares it with its README: each identity can do
// exactly what it needs. It also checks the admission policies of the chart and the permissions of its service
// accounts on a real API server.
package permissions_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/logger"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/manifest"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/deploy/testkit/natstest"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/proto/annotation"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/signature"
	"github.com/kv8s/curl-me-that/proto/status"
)

func TestPermissions(t *testing.T) { world.Run(t, "Permissions") }

var env *world.Environment

var _ = BeforeSuite(func() { env = world.Open() })

// shipped is the folder of the configuration.
const shipped = "../../nats"

// form is a configuration and how to run it.
type form struct {
	// files returns the configuration files.
	files func(context.Context) map[string]string
	// config is the name of the main configuration file.
	config string
	// servers is the number of servers. More than one form a cluster.
	servers int
	// tls reports whether clients must use TLS.
	tls bool
}

var (
	plain   = form{files: shippedFiles, config: "nats.conf", servers: 1}
	overTLS = form{files: shippedFiles, config: "tls.conf", servers: 1, tls: true}
	three   = form{files: composedFiles, config: "cluster.conf", servers: 3, tls: true}
	// threeOfChart has the configuration that the chart installs.
	threeOfChart = form{files: chartFiles(), config: "nats.conf", servers: 3, tls: true}
	// onSmallestDisks is threeOfChart with the smallest volumes on which the streams fit.
	onSmallestDisks = form{
		files: chartFiles("nats.bundled.storage.size=6Gi"), config: "nats.conf", servers: 3, tls: true,
	}
)

func shippedFiles(context.Context) map[string]string {
	GinkgoHelper()
	names := suitetest.Must(filepath.Glob(filepath.Join(shipped, "*.conf")))
	Expect(names).NotTo(BeEmpty())
	files := map[string]string{}
	for _, name := range names {
		files[filepath.Base(name)] = read(name)
	}
	return files
}

// composedFiles returns the configuration of docker compose with three servers.
func composedFiles(ctx context.Context) map[string]string {
	GinkgoHelper()
	files := shippedFiles(ctx)
	files["limits.conf"] = read("../../docker/nats-limits-ha.conf")
	return files
}

// chartFiles returns a function that renders the configuration of the chart with these values.
func chartFiles(set ...string) func(context.Context) map[string]string {
	return func(ctx context.Context) map[string]string {
		GinkgoHelper()
		objects := suitetest.Must(manifest.Render(ctx, manifest.Chart{
			Dir: "../../chart", Release: "curl-me-that", Namespace: "curl-me-that",
			Templates: []string{"nats-config.yaml"}, Set: append(set, "nats.bundled.replicas=3", "networkPolicy.enabled=false"),
		}))
		Expect(objects).To(HaveLen(1))
		files, _, err := unstructured.NestedStringMap(objects[0].Object, "data")
		Expect(err).NotTo(HaveOccurred())
		Expect(files).To(HaveKey("accounts.conf"))
		return files
	}
}

func read(file string) string {
	GinkgoHelper()
	return string(suitetest.Must(os.ReadFile(file)))
}

// broker is one NATS server or a cluster.
type broker struct {
	// Server is the first server.
	*natstest.Server
	servers []*natstest.Server
	// dir is the folder of the configuration, and identities of the seeds.
	dir, identities string
	// tls reports whether clients must use TLS.
	tls bool
	// root is the spec's own user, who may do everything in the account of the streams.
	root nkeys.KeyPair
	// watcher has additional flags of the watcher.
	watcher []string
	// policy binds the writer to its admission policy.
	policy bool
	// log is the log file of the servers.
	log string
}

// journal is the log of the servers. A fatal error does not end the test process.
type journal struct{ *logger.Logger }

func (j journal) Fatalf(format string, args ...any) { j.Errorf(format, args...) }

// violations returns the log lines of the servers about denied requests.
func (b *broker) violations() []string {
	GinkgoHelper()
	return regexp.MustCompile(".*Violation.*").FindAllString(read(b.log), -1)
}

// start runs servers with a configuration. curlctl creates their identities. The spec has one more user.
func start(ctx context.Context, f form) *broker {
	GinkgoHelper()
	b := &broker{dir: GinkgoT().TempDir(), tls: f.tls}
	b.identities = filepath.Join(b.dir, "identities")
	b.run(ctx, "identities", "--out", b.identities, "--tls-host", "localhost,127.0.0.1")
	var err error
	b.root = suitetest.Must(nkeys.CreateUser())
	for name, text := range f.files(ctx) {
		text = strings.ReplaceAll(text, "/etc/nats", b.dir)
		// On one disk, each of three servers would wait for the writes of the others.
		text = strings.ReplaceAll(text, `sync_interval: "always"`, "")
		if name == "accounts.conf" {
			text = b.rootedIn(text)
		}
		Expect(os.WriteFile(filepath.Join(b.dir, name), []byte(text), 0o600)).To(Succeed())
	}
	// The environment overrides these values of the configuration.
	GinkgoT().Setenv("NATS_ROUTES", "[]")
	GinkgoT().Setenv("SERVER_NAME", "natstest")
	b.log = filepath.Join(b.dir, "nats.log")
	said := journal{logger.NewFileLogger(b.log, false, false, false, false)}
	DeferCleanup(said.Close)
	options := natstest.Options{Listen: true, Monitor: true, ConfigFile: filepath.Join(b.dir, f.config), Log: said}
	if f.servers == 1 {
		b.servers = make([]*natstest.Server, 1)
		b.servers[0], err = natstest.Run(options)
	} else {
		b.servers, err = natstest.RunCluster(f.servers, options)
	}
	Expect(err).NotTo(HaveOccurred())
	b.Server = b.servers[0]
	for _, server := range b.servers {
		DeferCleanup(server.Close)
	}
	return b
}

// rootedIn adds the spec's user to the account of the streams.
func (b *broker) rootedIn(accounts string) string {
	GinkgoHelper()
	user, account, list := "{ nkey: "+public(b.root)+" }", "  CURL: {\n", "$JETSTREAM_MAX_FILE }\n\n    users: [\n"
	Expect(accounts).To(ContainSubstring(account))
	if strings.Contains(accounts, list) {
		return strings.Replace(accounts, list, list+user+"\n", 1)
	}
	return strings.Replace(accounts, account, account+"    users: [ "+user+" ]\n", 1)
}

// url returns the address of server n, modulo the number of servers.
func (b *broker) url(n int) string { return b.servers[n%len(b.servers)].URL() }

// topology asks for a replica of each stream on each server.
func (b *broker) topology() pipeline.Topology {
	return pipeline.Topology{Replicas: len(b.servers), HistoryBytes: 16 << 20}
}

// run runs curlctl and expects success.
func (b *broker) run(ctx context.Context, args ...string) string {
	GinkgoHelper()
	out, err := b.try(ctx, args...)
	Expect(err).NotTo(HaveOccurred(), "curlctl %s: %s", strings.Join(args, " "), out)
	return out
}

// try runs curlctl.
func (b *broker) try(ctx context.Context, args ...string) (out string, err error) {
	text, err := exec.CommandContext(ctx, env.Program("curlctl"), args...).CombinedOutput()
	return string(text), err
}

// as runs curlctl with an identity.
func (b *broker) as(ctx context.Context, identity string, args ...string) string {
	GinkgoHelper()
	return b.run(ctx, b.with(identity, args...)...)
}

// with adds the flags to connect as an identity.
func (b *broker) with(identity string, args ...string) []string {
	return append(append(args, "--nats-url="+b.URL()), b.flags(identity)...)
}

// flags returns the flags of any program to connect as an identity.
func (b *broker) flags(identity string) []string {
	flag := "--nats-nkey=" + b.seed(identity)
	if b.tls {
		return []string{flag, "--nats-ca=" + b.ca()}
	}
	return []string{flag}
}

// heal runs curlctl setup --watch until the end of the spec, which creates missing streams and consumers.
func (b *broker) heal(ctx context.Context) {
	GinkgoHelper()
	cmd := exec.Command(env.Program("curlctl"), b.with("setup", "setup", "--watch")...)
	cmd.Stdout, cmd.Stderr = GinkgoWriter, GinkgoWriter
	Expect(cmd.Start()).To(Succeed())
	DeferCleanup(func() {
		Expect(cmd.Process.Signal(os.Interrupt)).To(Succeed())
		_ = cmd.Wait() // fails because of the interrupt
	})
	Eventually(ctx, b.jetStream().Consumer).WithArguments(pipeline.Results, pipeline.WriterConsumer).ShouldNot(BeNil())
}

// ca returns the file with the trusted certificate.
func (b *broker) ca() string { return filepath.Join(b.identities, "ca.crt") }

// trust returns the TLS option of clients, or a no-op without TLS.
func (b *broker) trust() nats.Option {
	if !b.tls {
		return func(*nats.Options) error { return nil }
	}
	return nats.RootCAs(b.ca())
}

// seed returns the seed file of an identity.
func (b *broker) seed(identity string) string { return filepath.Join(b.identities, identity+".nk") }

// rooted returns the options for the spec's own connection.
func (b *broker) rooted() []nats.Option {
	GinkgoHelper()
	return []nats.Option{nats.Nkey(public(b.root), b.root.Sign), b.trust()}
}

// connect connects to the first server as an identity.
func (b *broker) connect(identity string) *nats.Conn {
	GinkgoHelper()
	return b.connectTo(b.URL(), identity)
}

func (b *broker) connectTo(url, identity string) *nats.Conn {
	GinkgoHelper()
	key := suitetest.Must(nats.NkeyOptionFromSeed(b.seed(identity)))
	prefix := identity
	switch identity {
	case "watcher", "fetcher", "writer":
	default:
		prefix = "curlctl"
	}
	nc := suitetest.Must(nats.Connect(url, key, b.trust(), nats.CustomInboxPrefix("_INBOX_"+prefix),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})))
	DeferCleanup(nc.Close)
	return nc
}

// jetStream returns the spec's own client, which uses a different server than the identities if there are
// several.
func (b *broker) jetStream() jetstream.JetStream {
	GinkgoHelper()
	nc := suitetest.Must(nats.Connect(b.url(2), b.rooted()...))
	DeferCleanup(nc.Close)
	return suitetest.Must(jetstream.New(nc, jetstream.WithDefaultTimeout(responseTimeout)))
}

// world starts the services on the broker, except for without. Each has its own identity and minimal
// permissions in Kubernetes.
func (b *broker) world(ctx context.Context, without ...string) *world.World {
	GinkgoHelper()
	trusted := "--trusted-keys=" + filepath.Join(b.identities, "signing.pub")
	flags := map[string][]string{
		world.Watcher: append(b.watcher, "--manage-streams=off", "--signing-key="+filepath.Join(b.identities, "signing.nk")),
		world.Fetcher: {"--max-attempts=2", "--recheck=1h", trusted},
		world.Writer:  {trusted},
	}
	for _, name := range world.Services() {
		flags[name] = append(flags[name], b.flags(name)...)
	}
	kubeconfigs := world.LeastRights(env.Cluster)
	if b.policy {
		kubeconfigs[world.Writer] = func(ctx context.Context, namespace string) string {
			return writer(ctx, namespace).Kubeconfig
		}
	}
	return env.World(ctx, world.Options{
		Broker: b.URL(), Connect: b.rooted(), Flags: flags, Kubeconfigs: kubeconfigs, Without: without,
	})
}

// shouldViolateNothing checks the logs of servers and services for missing permissions.
func (b *broker) shouldViolateNothing(w *world.World) {
	GinkgoHelper()
	Expect(b.violations()).To(BeEmpty())
	for _, name := range world.Services() {
		Expect(w.Service(name).Log.Matching("violation")).To(BeEmpty(), "log of %s", name)
		Expect(w.Service(name).Log.Matching("forbidden")).To(BeEmpty(), "log of %s", name)
	}
}

var _ = Describe("With the shipped configuration", func() {
	It("the whole pipeline works without a violation", func(ctx SpecContext) {
		b := start(ctx, overTLS)
		b.as(ctx, "setup", "setup")
		b.policy = true
		w := b.world(ctx)

		By("filling, refreshing, moving, editing, pruning and repairing")
		page := w.Origin.Page("/news").Says("first")
		mixed := w.Origin.Page("/mixed").Serves([]byte{0xff, 0xfe})
		cm := w.Create(ctx, "news", world.Asking("text="+page.URL()+" mixed="+mixed.URL()),
			world.Holding("theirs", "stays"), world.Annotated("x-kv8s.io/curl-refresh", "1s"))
		cm.EventuallyHasData(ctx, "text", "first")
		cm.EventuallyHasBinary(ctx, "mixed", []byte{0xff, 0xfe})
		page.Says("second")
		cm.EventuallyHasData(ctx, "text", "second")
		mixed.Says("words")
		cm.EventuallyHasData(ctx, "mixed", "words")
		cm.Ask(ctx, "text="+page.URL())
		cm.EventuallyLacks(ctx, "mixed")
		cm.Put(ctx, "text", "by hand")
		cm.EventuallyHasData(ctx, "text", "second")
		cm.Drop(ctx, "text")
		cm.EventuallyHasData(ctx, "text", "second")
		Expect(cm.Get(ctx).Data).To(HaveKeyWithValue("theirs", "stays"))

		By("letting keys wait for a slot of their host")
		var pairs []string
		for i, page := range w.Origin.Pages(20) {
			pairs = append(pairs, fmt.Sprintf("key%d=%s", i, page.Takes(time.Second).URL()))
		}
		many := w.Create(ctx, "many", world.Asking(strings.Join(pairs, " ")))
		Eventually(ctx, func() int { return len(many.Get(ctx).Data) }).Should(Equal(len(pairs)))
		Expect(w.Fetcher().Metric(ctx, "curlmethat_fetcher_claims_total", `outcome="won"`)).To(BeNumerically(">", 0))

		By("failing, and storing the failure")
		broken := w.Origin.Page("/broken").Fails(503)
		ill := w.Create(ctx, "ill", world.Asking("text="+broken.URL()))
		ill.EventuallyHasEvents(ctx, "BadStatus")
		Eventually(ctx, func() int { return w.Stored(ctx, pipeline.Failures, "curl.failure.>") }).Should(Equal(1))
		By("reporting occupied keys and immutable ConfigMaps")
		w.Create(ctx, "occupied", world.Holding("text", "stays"), world.Asking("text="+page.URL())).
			EventuallyHasEvents(ctx, "KeyExists")
		w.Create(ctx, "immutable", world.Immutable(), world.Asking("text="+page.URL())).EventuallyHasEvents(ctx, "Immutable")
		By("storing invalid messages as dead letters")
		for _, subject := range []string{"curl.due.default.junk.key", "curl.result.content.default.junk.key"} {
			suitetest.Must(w.JetStream.Publish(ctx, subject, []byte("junk")))
		}
		Eventually(ctx, func() int { return w.Stored(ctx, pipeline.Failures, "curl.failure.Malformed.>") }).Should(Equal(2))

		By("inspecting, replaying and administering")
		for _, command := range []string{
			"failures", "failures --summary", "wants", "timers", "status", "doctor", "setup --dry-run",
			"replay --all --dry-run",
		} {
			b.as(ctx, "viewer", strings.Fields(command)...)
		}
		broken.Says("well")
		b.as(ctx, "replayer", "replay", "--host", "localhost", "--wait", "--timeout", "2m")
		ill.EventuallyHasData(ctx, "text", "well")
		b.as(ctx, "replayer", "refetch", w.Namespace+"/ill")
		b.as(ctx, "replayer", "replay", "--all", "--rate", "100")
		b.as(ctx, "admin", "pause")
		b.as(ctx, "admin", "resume")
		b.as(ctx, "admin", "failures", "purge", "--all", "--yes")

		By("ending")
		cm.Annotate(ctx, annotation.DefaultKey, "")
		cm.Delete(ctx)
		ill.Unannotate(ctx, annotation.DefaultKey)
		ill.EventuallyLacks(ctx, "text")
		w.EventuallyQuiet(ctx)
		b.shouldViolateNothing(w)
		Expect(w.Writer().Metric(ctx, "curlmethat_writer_patches_total", `outcome="rejected"`)).To(BeZero())
		Expect(w.Writer().Metric(ctx, "curlmethat_writer_patches_total", `outcome="forbidden"`)).To(BeZero())
	})

	It("three replicas of each stream fit on the smallest disks of three servers", func(ctx SpecContext) {
		b := start(ctx, onSmallestDisks)
		setup := b.with("setup", "setup", "--replicas", "3") // it fails until a leader is elected
		Eventually(ctx, func() error { return world.ErrorOf(b.try(ctx, setup...)) }).WithTimeout(recreateTimeout).
			Should(Succeed())
	})

	It("setup recreates lost streams, and the watcher refills them", func(ctx SpecContext) {
		b := start(ctx, plain)
		b.heal(ctx)
		w := b.world(ctx)
		page, cm := w.Fill(ctx, "news", "first", world.Annotated("x-kv8s.io/curl-refresh", "1s"))
		w.EventuallyQuiet(ctx)

		for _, name := range []string{pipeline.Requests, pipeline.Results, pipeline.Failures} {
			Expect(w.JetStream.DeleteStream(ctx, name)).To(Succeed())
		}
		page.Says("second")
		cm.EventuallyHasDataWithin(ctx, time.Minute, "mydata", "second")
		Eventually(ctx, func() string { out, _ := b.try(ctx, b.with("setup", "setup", "--dry-run")...); return out }).
			WithPolling(time.Second).Should(ContainSubstring("are up to date"), "setup has nothing left to do")
		b.shouldViolateNothing(w)
	})
})

// client returns a client of the pipeline that connects as an identity.
func (b *broker) client(identity string) *pipeline.Client {
	GinkgoHelper()
	return pipeline.NewClient(suitetest.Must(jetstream.New(b.connect(identity))))
}

// opened creates the streams and starts the services, except for without. watcher has additional flags of the
// watcher.
func opened(ctx context.Context, watcher []string, without ...string) (*broker, *world.World) {
	GinkgoHelper()
	b := start(ctx, plain)
	b.watcher = watcher
	b.as(ctx, "setup", "setup")
	return b, b.world(ctx, without...)
}

// eventuallyWanted waits for the want for the key mydata of a ConfigMap. It returns the want and its sequence.
func eventuallyWanted(ctx context.Context, w *world.World, as *pipeline.Client, name string) (want *v1.Want,
	sequence uint64,
) {
	GinkgoHelper()
	Eventually(ctx, func() (err error) {
		want, sequence, err = as.LastWant(ctx, pipeline.Key{Namespace: w.Namespace, Name: name, Key: "mydata"})
		return err
	}).Should(Succeed())
	return want, sequence
}

// wantOf returns a want for the current object.
func wantOf(cm *corev1.ConfigMap, key string) *v1.Want {
	return &v1.Want{
		Namespace: cm.Namespace, Name: cm.Name, Key: key, Uid: string(cm.UID), ResourceVersion: cm.ResourceVersion,
	}
}

// forgeBody publishes a result with a body that no server sent.
func forgeBody(ctx context.Context, as *pipeline.Client, want *v1.Want, sequence uint64) {
	GinkgoHelper()
	body := []byte("forged")
	Expect(as.PublishResult(ctx, &v1.Result{
		Want: want, Sequence: sequence,
		Outcome: &v1.Result_Content{Content: &v1.Content{Body: body, Sha256: fmt.Sprintf("%x", sha256.Sum256(body))}},
	})).To(Succeed())
}

// eventuallyHandled waits until the writer has handled all results.
func eventuallyHandled(ctx context.Context, w *world.World) {
	GinkgoHelper()
	Eventually(ctx, func() int { return w.Stored(ctx, pipeline.Results, "curl.result.>") }).Should(BeZero())
}

var _ = Describe("A compromised fetcher", func() {
	// It can choose the sequence of each result, and also the epoch if the want is not signed. The status keeps
	// both, and later results with lower values count as older.
	It("cannot block later bodies by its choice of sequence and epoch", func(ctx SpecContext) {
		b, w := opened(ctx, nil, world.Fetcher)
		page := w.Origin.Page("/news").Says("asked for")
		fetcher := b.client("fetcher")
		for _, name := range []string{"signed", "tomorrow", "last"} { // until the real body arrives
			w.Breaks("ConfigMap " + name + " at version")
		}
		var attacked []*world.ConfigMap
		for name, forge := range map[string]func(*v1.Want){
			"signed":   func(*v1.Want) {},
			"tomorrow": func(w *v1.Want) { w.Epoch = time.Now().AddDate(0, 0, 1).UnixMilli() },
			"last":     func(w *v1.Want) { w.Epoch = status.MaxEpoch },
			"beyond":   func(w *v1.Want) { w.Epoch = math.MaxInt64 },
		} {
			cm := w.Create(ctx, name, world.Asking("mydata="+page.URL()))
			attacked = append(attacked, cm)
			want, _ := eventuallyWanted(ctx, w, fetcher, name)
			forge(want)
			forgeBody(ctx, fetcher, want, math.MaxUint64)
		}
		eventuallyHandled(ctx, w)
		w.Launch(ctx, world.Fetcher)
		for _, cm := range attacked {
			cm.Annotate(ctx, "x-kv8s.io/curl-now", "after the attack")
			cm.EventuallyHasData(ctx, "mydata", "asked for")
		}
	})

	// With a stolen signing key, it can write any key of an annotated object until that signing key is revoked.
	It("with a stolen signing key can write any key until the signing key is revoked", func(ctx SpecContext) {
		b, w := opened(ctx, nil, world.Fetcher)
		stolen := suitetest.Must(signature.LoadSigner(filepath.Join(b.identities, "signing.nk")))
		fetcher := b.client("fetcher")
		forge := func(name string) *world.ConfigMap {
			GinkgoHelper()
			cm := w.Create(ctx, name, world.Asking("mydata="+w.Origin.Page("/news").Says("asked for").URL()))
			want, sequence := eventuallyWanted(ctx, w, fetcher, name)
			want.Key = "password"
			stolen.Sign(want)
			forgeBody(ctx, fetcher, want, sequence)
			return cm
		}
		w.Breaks("key password was written without a request")
		before := forge("before")
		before.EventuallyHasData(ctx, "password", "forged")

		b.run(ctx, "identities", "--out", b.identities, "--revoke-signing-key")
		Eventually(ctx, func() []string { return w.Writer().Log.Matching("loaded the new content of file ") }).
			Should(HaveLen(1))
		suitetest.Must(w.Watcher().Stop(ctx))
		w.Watcher().Restart(ctx)
		after := forge("after")
		Eventually(ctx, func() int { return w.Stored(ctx, pipeline.Results, "curl.result.content.>") }).Should(BeZero())
		Expect(after.Get(ctx).Data).To(BeEmpty())
		By("writing requested keys afterwards")
		w.Launch(ctx, world.Fetcher)
		after.EventuallyHasData(ctx, "mydata", "asked for")
		Expect(after.Get(ctx).Data).NotTo(HaveKey("password"))
		before.EventuallyLacks(ctx, "password")
	})

	// The ID must be the same if another fetcher gets the redelivered message, and all fetchers share one
	// identity. So any fetcher can guess it.
	It("can suppress another fetcher's dead letter by its ID, but not the report of that failure", func(ctx SpecContext) {
		b := start(ctx, plain)
		suitetest.Must(pipeline.Ensure(ctx, b.jetStream(), pipeline.Topology{}))
		client := b.client("fetcher")
		key := pipeline.Key{Namespace: "default", Name: "cm", Key: "mydata"}
		other := pipeline.Key{Namespace: "default", Name: "other", Key: "mydata"}
		failure := &v1.Failure{Class: v1.FailureClass_FAILURE_CLASS_TIMEOUT, Host: "a.example.com"}
		Expect(client.PublishDeadLetter(ctx, other, &v1.DeadLetter{Failure: failure}, "1.7.dead")).To(Succeed())

		want := &v1.Want{Namespace: key.Namespace, Name: key.Name, Key: key.Key, Epoch: 1}
		Expect(client.PublishDeadLetter(ctx, key, &v1.DeadLetter{Want: want, Failure: failure}, "1.7.dead")).To(Succeed())
		Expect(client.PublishResult(ctx, &v1.Result{Want: want, Sequence: 7, Outcome: &v1.Result_Failure{Failure: failure}})).
			To(Succeed())
		for name, kept := range map[string]string{
			pipeline.Failures: other.DeadLetter("Timeout", "a.example.com"),
			pipeline.Results:  key.Failure(),
		} {
			stream := suitetest.Must(b.jetStream().Stream(ctx, name))
			info := suitetest.Must(stream.Info(ctx, jetstream.WithSubjectFilter(">")))
			Expect(info.State.Subjects).To(Equal(map[string]uint64{kept: 1}))
			Expect(info.Config.Duplicates).To(BeNumerically("<=", 5*time.Minute))
		}
	})
})

var _ = Describe("A compromised watcher", func() {
	// Fetchers accept any message from it, and the writer trusts its signature.
	It("can write keys of new objects until the real watcher sees them", func(ctx SpecContext) {
		b, w := opened(ctx, nil)
		asked := world.Asking("mydata=" + w.Origin.Page("/news").Says("asked for").URL())
		seen := w.Create(ctx, "seen", asked)
		seen.EventuallyHasData(ctx, "mydata", "asked for")
		suitetest.Must(w.Watcher().Stop(ctx))
		stolen := suitetest.Must(signature.LoadSigner(filepath.Join(b.identities, "signing.nk")))
		watcher := b.client("watcher")
		epoch, _, err := pipeline.Epoch(ctx, watcher.JetStream())
		Expect(err).NotTo(HaveOccurred())
		url := w.Origin.Page("/forged").Says("forged").URL()
		forge := func(cm *world.ConfigMap, key string) {
			GinkgoHelper()
			want := wantOf(cm.Get(ctx), key)
			want.Url, want.Epoch, want.Cause = url, epoch, v1.Cause_CAUSE_NEW
			stolen.Sign(want)
			suitetest.Must(watcher.PublishWant(ctx, want, 0))
		}
		theirs := world.Holding("theirs", "value")
		unseen, owned, bare := w.Create(ctx, "unseen", asked), w.Create(ctx, "owned", asked, theirs),
			w.Create(ctx, "bare", theirs)
		for _, found := range []string{
			"S1: ConfigMap unseen at version", "S1: ConfigMap bare at version", "S1: ConfigMap owned at version",
			"S4: ConfigMap owned at version",
		} {
			w.Breaks(found)
		}
		for _, cm := range []*world.ConfigMap{seen, unseen, bare} {
			forge(cm, "password")
		}
		forge(owned, "theirs")
		unseen.EventuallyHasData(ctx, "password", "forged")
		bare.EventuallyHasData(ctx, "password", "forged")
		owned.EventuallyHasData(ctx, "theirs", "forged")
		w.EventuallyQuiet(ctx)
		Expect(seen.Get(ctx).Data).To(Equal(map[string]string{"mydata": "asked for"}))

		By("keeping keys that are requested, or that the writer did not write")
		for _, cm := range []*world.ConfigMap{seen, bare} {
			remove := &v1.Result_Reconcile{Reconcile: &v1.Reconcile{Remove: true}}
			Expect(watcher.PublishResult(ctx, &v1.Result{Want: wantOf(cm.Get(ctx), status.ObjectKey), Outcome: remove})).
				To(Succeed())
		}
		eventuallyHandled(ctx, w)
		w.EventuallyQuiet(ctx)
		Expect(seen.Get(ctx).Data).To(Equal(map[string]string{"mydata": "asked for"}))
		Expect(bare.Get(ctx).Data).To(HaveKeyWithValue("theirs", "value"))

		By("removing written keys, together with the values they replaced")
		w.Watcher().Restart(ctx)
		bare.EventuallyLacks(ctx, "password")
		for cm, key := range map[*world.ConfigMap]string{unseen: "password", owned: "theirs"} {
			cm.EventuallyLacks(ctx, key)
			cm.EventuallyHasData(ctx, "mydata", "asked for")
		}
	})
})

var _ = Describe("A compromised replayer", func() {
	// forge makes NATS publish a want with another URL, because NATS publishes the payload of a timer on any
	// subject of the stream of requests.
	forge := func(ctx context.Context, replayer *nats.Conn, cm *world.ConfigMap, key pipeline.Key, url string) {
		GinkgoHelper()
		want := wantOf(cm.Get(ctx), key.Key)
		want.Url, want.Epoch = url, 1
		timer := nats.NewMsg(key.Timer())
		timer.Data = suitetest.Must(proto.Marshal(want))
		timer.Header.Set("Nats-Schedule", "@at "+time.Now().UTC().Format(time.RFC3339Nano))
		timer.Header.Set("Nats-Schedule-Target", key.Want())
		Expect(replayer.PublishMsg(timer)).To(Succeed())
	}

	// Fetchers verify a signature only before they send credentials.
	It("can make a fetcher GET any URL, but can neither read the response nor write it", func(ctx SpecContext) {
		b, w := opened(ctx, nil)
		_, cm := w.Fill(ctx, "target", "asked for")
		key := pipeline.Key{Namespace: w.Namespace, Name: "target", Key: "mydata"}

		replayer := b.connect("replayer")
		seen := make(chan *nats.Msg, 1<<10)
		suitetest.Must(replayer.ChanSubscribe(key.Content(), seen))
		page := w.Origin.Page("/internal").Says("of others")
		forge(ctx, replayer, cm, key, page.URL())
		Eventually(ctx, page.Hits).Should(Equal(1))
		w.EventuallyQuiet(ctx)
		Expect(replayer.Flush()).To(Succeed())
		Expect(seen).To(BeEmpty())
		Expect(cm.Get(ctx).Data).To(Equal(map[string]string{"mydata": "asked for"}))
	})

	It("cannot make a fetcher send credentials to an unsigned URL, and the key recovers", func(ctx SpecContext) {
		b, w := opened(ctx, []string{"--audit-interval=1s"}, world.Fetcher)
		headers := filepath.Join(GinkgoT().TempDir(), "headers.yaml")
		Expect(os.WriteFile(headers, fmt.Appendf(nil, `- {host: "*", ports: [%d], schemes: [http], namespaces: ["*"], `+
			`headers: {Authorization: Bearer secret}}`, w.Origin.Port()), 0o600)).To(Succeed())
		w.Launch(ctx, world.Fetcher, "--header-file="+headers).EventuallyReady(ctx)
		internal := w.Origin.Page("/internal").Says("of others")
		asked, cm := w.Fill(ctx, "target", "asked for", world.Annotated("x-kv8s.io/curl-refresh", "1s"))
		replayer, key := b.connect("replayer"), pipeline.Key{Namespace: w.Namespace, Name: "target", Key: "mydata"}
		Eventually(ctx, func() int {
			forge(ctx, replayer, cm, key, internal.URL()) // the refresh may replace the forged timer before it fires
			return w.Stored(ctx, pipeline.Failures, "curl.failure.AddressDenied.>")
		}).WithPolling(time.Second).Should(BeNumerically(">=", 1))
		asked.Says("later")
		cm.EventuallyHasDataWithin(ctx, time.Minute, "mydata", "later")
		hits := asked.Hits() // refreshes continue, so read the other counter last
		Expect(asked.Authorized()).To(BeNumerically(">=", hits))
		Expect(internal.Hits()).To(BeZero())
	})
})

var _ = Describe("A compromised service that acknowledges messages without handling them", func() {
	DescribeTable("keeps a key empty only until it is replaced", func(ctx SpecContext, identity, stream, consumer string) {
		b, w := opened(ctx, []string{"--audit-interval=1s"}, identity)
		cm := w.Create(ctx, "news", world.Asking("mydata="+w.Origin.Page("/news").Says("asked for").URL()))
		work := suitetest.Must(b.client(identity).JetStream().Consumer(ctx, stream, consumer))
		Eventually(ctx, func() error {
			taken, err := work.Next(jetstream.FetchMaxWait(time.Second))
			if err != nil {
				return err
			}
			return taken.DoubleAck(ctx)
		}).Should(Succeed())
		Expect(cm.Get(ctx).Data).To(BeEmpty())
		w.Launch(ctx, identity)
		cm.EventuallyHasDataWithin(ctx, time.Minute, "mydata", "asked for")
	},
		Entry(nil, world.Fetcher, pipeline.Requests, pipeline.FetcherConsumer),
		Entry(nil, world.Writer, pipeline.Results, pipeline.WriterConsumer),
	)
})
