package world

import (
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/proto/pipeline/natstest"
	"github.com/kv8s/curl-me-that/proto/suitetest"
)

// Broker is a NATS server whose store can be saved and brought back.
type Broker struct {
	*natstest.Server
	store, saved string
}

// RunBroker runs a NATS server until the end of the spec.
func RunBroker() *Broker {
	GinkgoHelper()
	dir := GinkgoT().TempDir()
	b := &Broker{store: filepath.Join(dir, "store"), saved: filepath.Join(dir, "saved")}
	b.Server = suitetest.Must(natstest.Run(natstest.Options{Listen: true, StoreDir: b.store}))
	DeferCleanup(b.Close)
	return b
}

// Save copies the current store.
func (b *Broker) Save() {
	GinkgoHelper()
	b.Stop()
	PutBack(b.saved, b.store)
	Expect(b.Start()).To(Succeed())
}

// Restore brings the saved store back.
func (b *Broker) Restore() {
	GinkgoHelper()
	b.Stop()
	PutBack(b.store, b.saved)
	Expect(b.Start()).To(Succeed())
}

// PutBack replaces a folder with a copy of another.
func PutBack(dir, by string) {
	GinkgoHelper()
	Expect(os.RemoveAll(dir)).To(Succeed())
	Expect(os.CopyFS(dir, os.DirFS(by))).To(Succeed())
}
