package acceptance_test

import (
	"crypto/sha256"
	"encoding/hex"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/status"
)

// Copies and backups of an object include its status annotation.
var _ = Describe("A copy of a ConfigMap with its status", func() {
	// copied adds a status for url as written in another cluster, by a writer with an older object
	// and a higher fence.
	copied := func(url, body string) world.Trait {
		sum := sha256.Sum256([]byte(body))
		return world.Annotated(annotation.StatusKey, status.Status{Keys: map[string]status.Entry{"mydata": {
			URL: url, SHA256: hex.EncodeToString(sum[:]), Size: int64(len(body)), FetchedAt: time.Now().Add(-time.Hour),
			Object: "another", Fence: status.Fence{Epoch: time.Now().AddDate(1, 0, 0).UnixMilli(), Seq: 1_000_000},
		}}}.String())
	}

	It("is filled by the requests of this cluster, whatever the fence of the other one", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		page := w.Origin.Page("/copied").Says("now")
		cm := w.Create(ctx, "copied", world.Asking("mydata="+page.URL()), world.Annotated("x-kv8s.io/curl-refresh", "1s"),
			world.Holding("mydata", "then"), copied(page.URL(), "then"))
		cm.EventuallyHasData(ctx, "mydata", "now")
		page.Says("later")
		cm.EventuallyHasData(ctx, "mydata", "later")
		Expect(cm.Status(ctx, "mydata").Object).To(Equal(status.Mark(cm.Get(ctx).UID)))
		Expect(cm.Writes(ctx)).To(Equal(2))
		cm.Tells(ctx)
	})

	It("is taken over by one write, whether or not its value is still there", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		page := w.Origin.Page("/same").Says("same")
		held := w.Create(ctx, "held", world.Asking("mydata="+page.URL()), world.Holding("mydata", "same"),
			copied(page.URL(), "same"))
		bare := w.Create(ctx, "bare", world.Asking("mydata="+page.URL()), copied(page.URL(), "same"))
		for _, cm := range []*world.ConfigMap{held, bare} {
			cm.EventuallyReports(ctx, "mydata", "")
			Eventually(ctx, func() string { return cm.Status(ctx, "mydata").Object }).Should(Equal(status.Mark(cm.Get(ctx).UID)))
			cm.EventuallyHasData(ctx, "mydata", "same")
		}
		w.EventuallyQuiet(ctx)
		Expect(held.Writes(ctx)).To(Equal(1))
		Expect(bare.Writes(ctx)).To(Equal(1))
	})

	It("keeps a value that a user set", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		page := w.Origin.Page("/ours").Says("ours")
		cm := w.Create(ctx, "theirs", world.Asking("mydata="+page.URL()), world.Holding("mydata", "theirs"),
			copied(page.URL(), "ours, then"))
		cm.EventuallyTells(ctx, "KeyExists")
		w.EventuallyQuiet(ctx)
		Expect(cm.Get(ctx).Data).To(HaveKeyWithValue("mydata", "theirs"))
		cm.Tells(ctx, "KeyExists")
		cm.Drop(ctx, "mydata")
		cm.EventuallyHasData(ctx, "mydata", "ours")
	})
})

var _ = Describe("A stream of requests with lower sequences than the fence of an object", func() {
	It("does not stop results from being written", func(ctx SpecContext) {
		// This happens after NATS was restored from a backup, or created again on a machine whose
		// clock is behind.
		w := env.World(ctx, world.Options{})
		_, cm := w.Fill(ctx, "ahead", "one")
		w.EventuallyQuiet(ctx)
		for _, ahead := range []status.Fence{
			{Epoch: cm.Status(ctx, "mydata").Fence.Epoch, Seq: 1_000_000},
			{Epoch: time.Now().AddDate(1, 0, 0).UnixMilli(), Seq: 1_000_000},
		} {
			entry := cm.Status(ctx, "mydata")
			entry.Fence = ahead
			cm.Annotate(ctx, annotation.StatusKey, status.Status{Keys: map[string]status.Entry{"mydata": entry}}.String())
			w.EventuallyQuiet(ctx)
			body := "after " + ahead.String()
			page := w.Origin.Page("/" + ahead.String()).Says(body)
			cm.Ask(ctx, "mydata="+page.URL())
			cm.EventuallyHasData(ctx, "mydata", body)
			w.EventuallyQuiet(ctx)

			cm.Ask(ctx, "mydata="+page.URL()+" other="+page.URL())
			cm.EventuallyHasData(ctx, "other", body)
			cm.Ask(ctx, "mydata="+page.URL())
			cm.EventuallyLacks(ctx, "other")
		}
	})
})
