package random_test

import (
	"context"
	"os"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/proto/pipeline/natstest"
)

const (
	// ackWait is after what time the work of a program that was killed is given
	// to another one.
	ackWait = 2 * time.Second
	// maxBroken is after how many broken promises the rest is not tried.
	maxBroken = 10
)

// system is what the rounds work on, one after another.
type system struct {
	*world.World
	broker *broker
	// rights of the writer in the namespace that its rights are taken in.
	rights *world.Account
}

// begin runs the services with short intervals. The namespace of the world is
// the one that everything happens in; an ordinary tenant lives beside it.
func begin(ctx context.Context) *system {
	GinkgoHelper()
	s := &system{broker: runBroker()}
	s.World = env.World(ctx, world.Options{
		Broker: s.broker.URL(), AckWait: ackWait, Tenants: 1,
		Kubeconfigs: map[string]func(context.Context, string) string{world.Writer: s.writerAccount},
		Flags: map[string][]string{
			world.Watcher: {"--audit-interval=1s", "--coalesce=100ms"},
			world.Fetcher: {"--recheck=1s", "--retry-base=100ms", "--retry-max=500ms", "--max-retry-after=1s"},
		},
	})
	s.rights.In(ctx, s.Tenants[0].Namespace, world.WriterRules()...)
	return s
}

// writerAccount is asked for before the writer starts.
func (s *system) writerAccount(ctx context.Context, namespace string) string {
	GinkgoHelper()
	s.rights = env.Cluster.Account(ctx, namespace, world.Writer, world.WriterRules()...)
	return s.rights.Kubeconfig
}

// broker is a NATS server whose store can be saved and brought back.
type broker struct {
	*natstest.Server
	store, saved string
}

func runBroker() *broker {
	GinkgoHelper()
	dir := GinkgoT().TempDir()
	b := &broker{store: filepath.Join(dir, "store"), saved: filepath.Join(dir, "saved")}
	var err error
	b.Server, err = natstest.Run(natstest.Options{Listen: true, StoreDir: b.store})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(b.Close)
	return b
}

// save keeps a copy of the store as it is now.
func (b *broker) save() {
	GinkgoHelper()
	b.Stop()
	replace(b.saved, b.store)
	Expect(b.Start()).To(Succeed())
}

// restore brings the saved store back.
func (b *broker) restore() {
	GinkgoHelper()
	b.Stop()
	replace(b.store, b.saved)
	Expect(b.Start()).To(Succeed())
}

func replace(dir, by string) {
	GinkgoHelper()
	Expect(os.RemoveAll(dir)).To(Succeed())
	Expect(os.CopyFS(dir, os.DirFS(by))).To(Succeed())
}
