package watcher_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"time"

	"github.com/nats-io/nats.go"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"

	"github.com/kv8s/curl-me-that/deploy/testkit/natstest"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

var _ = Describe("A watcher", func() {
	It("publishes nothing at its start if the stream is up to date", func(ctx SpecContext) {
		first := w.watch().awaitReady()
		w.satisfied(ctx, "satisfied", "example.com/a")
		w.wanted(ctx, "waiting", "example.com/b")
		first.Stop()
		before := w.sequence()
		second := w.watch().awaitReady()
		Eventually(second.Log).Should(gbytes.Say("publishing wants"))
		Consistently(w.sequence).Should(Equal(before))
	})

	// lost empties the stream and expects the watcher to refill it.
	lost := func(ctx context.Context, empty func()) {
		GinkgoHelper()
		settled := w.satisfied(ctx, "settled", "example.com/a")
		waiting := w.wanted(ctx, "waiting", "example.com/b")
		empty()
		Eventually(w.url(ctx, settled)).Should(Equal("https://example.com/a"))
		Eventually(w.url(ctx, waiting)).Should(Equal("https://example.com/b"))
		Expect(w.want(ctx, settled)().GetCached().GetSha256()).To(Equal(pipeline.Digest("body of example.com/a")))
		Expect(w.want(ctx, waiting)().GetCached()).To(BeNil())
		Expect(w.notes(ctx, "Drifted")).To(BeEmpty())
	}

	It("refills a deleted stream", func(ctx SpecContext) {
		w.watch(func(o *options) { o.pace.Check = 100 * time.Millisecond }).awaitReady()
		lost(ctx, func() { Expect(w.js.DeleteStream(ctx, pipeline.Requests)).To(Succeed()) })
	})

	It("recreates a deleted consumer", func(ctx SpecContext) {
		w.watch(func(o *options) { o.pace.Check = 100 * time.Millisecond }).awaitReady()
		for stream, consumer := range map[string]string{
			pipeline.Requests: pipeline.FetcherConsumer, pipeline.Results: pipeline.WriterConsumer,
		} {
			Expect(w.js.DeleteConsumer(ctx, stream, consumer)).To(Succeed())
			Eventually(func() error {
				_, err := w.js.Consumer(ctx, stream, consumer)
				return err
			}).Should(Succeed())
		}
	})

	It("refills a purged stream long before the next comparison", func(ctx SpecContext) {
		i := w.watch(func(o *options) { o.pace.Check = time.Hour }).awaitReady()
		lost(ctx, func() {
			stream := suitetest.Must(w.js.Stream(ctx, pipeline.Requests))
			Expect(stream.Purge(ctx)).To(Succeed())
		})
		Expect(i.Log).To(gbytes.Say("the stream of requests was changed by another client: it was purged"))
		Eventually(i.Value(own + "purges_total")).Should(BeEquivalentTo(1))
	})

	It("publishes the backlog after an outage of the broker, and logs little during it", func(ctx SpecContext) {
		i := w.watch().awaitReady()
		gone := w.satisfied(ctx, "gone", "example.com")
		w.nats.Stop()
		w.delete(ctx, "gone")
		for n := range 50 {
			w.create(ctx, fmt.Sprintf("cm-%d", n), fmt.Sprintf("k=example.com/%d", n))
		}
		Eventually(i.ready).Should(ContainSubstring("[-]nats not ready"))
		Consistently(func() int { return bytes.Count(i.Log.Contents(), []byte("\n")) }).Should(BeNumerically("<", 10))
		Expect(w.nats.Start()).To(Succeed())
		for n := range 50 {
			Eventually(w.url(ctx, w.key(fmt.Sprintf("cm-%d", n), "k"))).Should(Equal(fmt.Sprintf("https://example.com/%d", n)))
		}
		Eventually(w.retracted(ctx, gone)).Should(BeTrue())
		Expect(bytes.Count(i.Log.Contents(), []byte("\n"))).To(BeNumerically("<", 15))
		i.awaitReady()
	})

	DescribeTable("continues as soon as the connection is back if it breaks", func(ctx SpecContext, at string) {
		const count = 50
		name := func(n int) string { return fmt.Sprintf("cm-%d", n) }
		w.createAll(ctx, count, name, "k=example.com")
		i := w.watch(func(o *options) { o.dial = nats.InProcessServer(&breaking{server: w.nats, at: at}) })
		Eventually(i.Log).Should(gbytes.Say("no connection to NATS"))
		for n := range count {
			// less than the timeout of a request
			Eventually(w.url(ctx, w.key(name(n), "k"))).WithTimeout(8 * time.Second).ShouldNot(BeEmpty())
		}
	},
		Entry("while it reads the stream", "DIRECT.GET"),
		Entry("while it publishes a want", "HPUB curl.want."),
	)

	It("retracts malformed messages of its own namespaces only", func(ctx SpecContext) {
		w.watch().awaitReady().Stop()
		wanted, unwanted, elsewhere := w.key("cm", "k"), w.key("none", "k"),
			pipeline.Key{Namespace: "another", Name: "none", Key: "k"}
		for _, key := range []pipeline.Key{wanted, unwanted, elsewhere} {
			suitetest.Must(w.js.Publish(ctx, key.WantSubject(), []byte("garbage")))
		}
		suitetest.Must(w.js.Publish(ctx, "curl.want.nonsense", []byte("garbage")))
		w.create(ctx, "cm", "k=example.com")
		w.watch().awaitReady()
		Eventually(w.url(ctx, wanted)).Should(Equal("https://example.com"))
		Eventually(w.retracted(ctx, unwanted)).Should(BeTrue())
		Expect(w.retracted(ctx, elsewhere)()).To(BeFalse(), "it belongs to another namespace")
	})
})

// breaking is a connection that breaks once when the client sends a text.
type breaking struct {
	net.Conn
	server *natstest.Server
	at     string
	broken bool
}

func (b *breaking) InProcessConn() (conn net.Conn, err error) {
	b.Conn, err = b.server.InProcessConn()
	return b, err
}

func (b *breaking) Write(data []byte) (int, error) {
	if !b.broken && bytes.Contains(data, []byte(b.at)) {
		b.broken = true
		return 0, b.Close()
	}
	return b.Conn.Write(data)
}

// audited shortens the intervals: the grace period is 100 ms, and a timer is overdue after 200 ms.
func audited(o *options) { o.pace.Audit, o.pace.Check = 400*time.Millisecond, 100*time.Millisecond }
