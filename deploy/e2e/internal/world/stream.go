package world

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/testkit/natstest"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// quietFor is how long nothing may change before a world counts as quiet. It is longer than the time for which
// the watcher coalesces edits.
const quietFor = 400 * time.Millisecond

type flow struct {
	requests, results uint64 // last sequences of the streams
	waiting           uint64 // messages that fetchers and writers have not acknowledged
}

// flow reads the progress of the pipeline.
func (w *World) flow(ctx context.Context) (flow, error) {
	var f flow
	for _, c := range []struct {
		stream, durable string
		last            *uint64
	}{
		{pipeline.Requests, pipeline.FetcherConsumer, &f.requests},
		{pipeline.Results, pipeline.WriterConsumer, &f.results},
	} {
		stream, err := w.JetStream.Stream(ctx, c.stream)
		if err != nil {
			return flow{}, err
		}
		*c.last = stream.CachedInfo().State.LastSeq
		consumer, err := stream.Consumer(ctx, c.durable)
		if err != nil {
			return flow{}, err
		}
		info := consumer.CachedInfo()
		f.waiting += info.NumPending + uint64(info.NumAckPending)
	}
	return f, nil
}

// EventuallyQuiet waits until every message is acknowledged and no new one has come for quietFor.
func (w *World) EventuallyQuiet(ctx context.Context) {
	GinkgoHelper()
	var last flow
	since := time.Now()
	Eventually(ctx, func(g Gomega) {
		now, err := w.flow(ctx)
		g.Expect(err).NotTo(HaveOccurred())
		if now != last {
			last, since = now, time.Now()
		}
		g.Expect(now.waiting).To(BeZero(), "messages for fetchers and writers")
		g.Expect(time.Since(since)).To(BeNumerically(">", quietFor), "time without a new message")
	}).WithTimeout(45 * time.Second).WithPolling(50 * time.Millisecond).Should(Succeed())
}

// eventuallyFlow is flow with retries, for a broker that is still starting.
func (w *World) eventuallyFlow(ctx context.Context) (f flow) {
	GinkgoHelper()
	Eventually(ctx, func() (err error) {
		f, err = w.flow(ctx)
		return err
	}).Should(Succeed())
	return f
}

// Published returns the number of messages ever published to the stream of requests.
func (w *World) Published(ctx context.Context) int {
	GinkgoHelper()
	return int(w.eventuallyFlow(ctx).requests)
}

// Stored returns the number of messages in a stream on matching subjects.
func (w *World) Stored(ctx context.Context, stream, subjects string) int {
	GinkgoHelper()
	n := 0
	Eventually(ctx, func() error {
		s, err := w.JetStream.Stream(ctx, stream)
		if err != nil {
			return err
		}
		info, err := s.Info(ctx, jetstream.WithSubjectFilter(subjects))
		if err != nil {
			return err
		}
		n = 0
		for _, count := range info.State.Subjects {
			n += int(count)
		}
		return nil
	}).Should(Succeed())
	return n
}

// Purge removes all messages of a stream.
func (w *World) Purge(ctx context.Context, name string) {
	GinkgoHelper()
	stream := suitetest.Must(w.JetStream.Stream(ctx, name))
	Expect(stream.Purge(ctx)).To(Succeed())
}

// Backlog returns the number of requests that no fetcher has received yet.
func (w *World) Backlog(ctx context.Context) uint64 {
	GinkgoHelper()
	consumer, err := w.JetStream.Consumer(ctx, pipeline.Requests, pipeline.FetcherConsumer)
	Expect(err).NotTo(HaveOccurred())
	return consumer.CachedInfo().NumPending
}

// Broker is a NATS server whose store can be saved and restored.
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
	ReplaceDir(b.saved, b.store)
	Expect(b.Start()).To(Succeed())
}

// Restore replaces the store by the saved one.
func (b *Broker) Restore() {
	GinkgoHelper()
	b.Stop()
	ReplaceDir(b.store, b.saved)
	Expect(b.Start()).To(Succeed())
}

// ReplaceDir replaces a folder with a copy of another.
func ReplaceDir(dir, source string) {
	GinkgoHelper()
	Expect(os.RemoveAll(dir)).To(Succeed())
	Expect(os.CopyFS(dir, os.DirFS(source))).To(Succeed())
}
