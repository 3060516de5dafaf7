package permissions_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/pipeline/natstest"
)

// shipped is the folder of the configuration.
const shipped = "../../nats"

// broker is a NATS server with the shipped configuration.
type broker struct {
	*natstest.Server
	// dir holds the configuration, and identities the seeds.
	dir, identities string
	// tls tells whether clients must use it.
	tls bool
	// root may do everything in the account of the pipeline; it is the spec's.
	root nkeys.KeyPair
	said *journal
}

// journal keeps what a server has to say.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) add(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, fmt.Sprintf(format, args...))
}

// violations returns what the server refused to do.
func (j *journal) violations() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	var found []string
	for _, line := range j.lines {
		if strings.Contains(line, "Violation") {
			found = append(found, line)
		}
	}
	return found
}

func (j *journal) Noticef(string, ...any)            {}
func (j *journal) Debugf(string, ...any)             {}
func (j *journal) Tracef(string, ...any)             {}
func (j *journal) Warnf(format string, args ...any)  { j.add(format, args...) }
func (j *journal) Errorf(format string, args ...any) { j.add(format, args...) }
func (j *journal) Fatalf(format string, args ...any) { j.add(format, args...) }

// start runs a server by a shipped file, with identities as curlctl makes them
// and one user more for the spec.
func start(ctx context.Context, config string) *broker {
	GinkgoHelper()
	b := &broker{dir: GinkgoT().TempDir(), said: &journal{}, tls: config != "nats.conf"}
	b.identities = filepath.Join(b.dir, "identities")
	b.run(ctx, "identities", "--out", b.identities, "--tls-host", "localhost,127.0.0.1")
	var err error
	b.root, err = nkeys.CreateUser()
	Expect(err).NotTo(HaveOccurred())
	public, err := b.root.PublicKey()
	Expect(err).NotTo(HaveOccurred())

	files, err := filepath.Glob(filepath.Join(shipped, "*.conf"))
	Expect(err).NotTo(HaveOccurred())
	Expect(files).NotTo(BeEmpty())
	for _, file := range files {
		text, err := os.ReadFile(file)
		Expect(err).NotTo(HaveOccurred())
		changed := strings.ReplaceAll(string(text), "/etc/nats", b.dir)
		if filepath.Base(file) == "accounts.conf" {
			Expect(changed).To(ContainSubstring("  CURL: {\n"))
			changed = strings.Replace(changed, "  CURL: {\n", "  CURL: {\n    users: [ { nkey: "+public+" } ]\n", 1)
		}
		Expect(os.WriteFile(filepath.Join(b.dir, filepath.Base(file)), []byte(changed), 0o600)).To(Succeed())
	}
	b.Server, err = natstest.Run(natstest.Options{Listen: true, ConfigFile: filepath.Join(b.dir, config), Log: b.said})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(b.Close)
	return b
}

// run runs curlctl, which must succeed.
func (b *broker) run(ctx context.Context, args ...string) string {
	GinkgoHelper()
	out, err := exec.CommandContext(ctx, env.Program("curlctl"), args...).CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), "curlctl %s: %s", strings.Join(args, " "), out)
	return string(out)
}

// as runs curlctl with an identity.
func (b *broker) as(ctx context.Context, identity string, args ...string) string {
	GinkgoHelper()
	return b.run(ctx, b.with(identity, args...)...)
}

// with adds to the arguments of curlctl how to connect as an identity.
func (b *broker) with(identity string, args ...string) []string {
	args = append(args, "--server", b.URL(), "--nkey", b.seed(identity))
	if b.tls {
		args = append(args, "--ca", b.ca())
	}
	return args
}

// heal lets curlctl create the streams and consumers, whenever they are missing,
// until the end of the spec.
func (b *broker) heal(ctx context.Context) {
	GinkgoHelper()
	cmd := exec.Command(env.Program("curlctl"), b.with("setup", "setup", "--watch")...)
	cmd.Stdout, cmd.Stderr = GinkgoWriter, GinkgoWriter
	Expect(cmd.Start()).To(Succeed())
	DeferCleanup(func() {
		Expect(cmd.Process.Signal(os.Interrupt)).To(Succeed())
		_ = cmd.Wait() // that it was interrupted is an error to it
	})
	Eventually(ctx, func() error {
		_, err := b.jetStream().Consumer(ctx, pipeline.Results, pipeline.WriterConsumer)
		return err
	}).Should(Succeed())
}

// ca is the file with the certificate to trust.
func (b *broker) ca() string { return filepath.Join(b.identities, "ca.crt") }

// trust is how clients come to TLS, if they must use it.
func (b *broker) trust() nats.Option {
	if !b.tls {
		return func(*nats.Options) error { return nil }
	}
	return nats.RootCAs(b.ca())
}

// seed returns the file with the seed of an identity.
func (b *broker) seed(identity string) string { return filepath.Join(b.identities, identity+".nk") }

// rooted is how the spec itself connects.
func (b *broker) rooted() []nats.Option {
	GinkgoHelper()
	public, err := b.root.PublicKey()
	Expect(err).NotTo(HaveOccurred())
	return []nats.Option{nats.Nkey(public, b.root.Sign), b.trust()}
}

// connect connects as an identity.
func (b *broker) connect(identity string, opts ...nats.Option) *nats.Conn {
	GinkgoHelper()
	key, err := nats.NkeyOptionFromSeed(b.seed(identity))
	Expect(err).NotTo(HaveOccurred())
	prefix := identity
	switch identity {
	case "watcher", "fetcher", "writer":
	default:
		prefix = "curlctl"
	}
	nc, err := nats.Connect(b.URL(), append([]nats.Option{
		key, b.trust(), nats.CustomInboxPrefix("_INBOX_" + prefix),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}),
	}, opts...)...)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(nc.Close)
	return nc
}

// jetStream is the spec's own.
func (b *broker) jetStream() jetstream.JetStream {
	GinkgoHelper()
	nc, err := nats.Connect(b.URL(), b.rooted()...)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(nc.Close)
	js, err := jetstream.New(nc)
	Expect(err).NotTo(HaveOccurred())
	return js
}
