package permissions_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/logger"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/manifest"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/deploy/testkit/natstest"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// Timeouts on a busy machine: for one response, and for the re-creation of all streams on three servers.
const (
	responseTimeout = 30 * time.Second
	recreateTimeout = 90 * time.Second
)

// onEach adds specs for each form. They share a broker.
func onEach(forms map[string]form, specs func(f form, b func() *broker)) {
	for where, f := range forms {
		Context(where, Ordered, ContinueOnFailure, func() {
			var b *broker
			BeforeAll(func(ctx SpecContext) { b = start(ctx, f) })
			specs(f, func() *broker { return b })
		})
	}
}

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
