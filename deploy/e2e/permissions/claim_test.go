package permissions_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
)

var _ = Describe("A fetcher that lost the response to a claim", func() {
	It("may look whether it has the key", func(ctx SpecContext) {
		b, w := opened(ctx, nil, world.Fetcher)
		fetcher := b.client("fetcher")
		cm := w.Create(ctx, "claimed", world.Asking("mydata="+w.Origin.Page("/news").Says("asked for").URL()))
		want, sequence := eventuallyWanted(ctx, w, fetcher, "claimed")
		due, at := &v1.Due{Want: want, WantSequence: sequence}, time.Now().Add(time.Hour)
		lease := suitetest.Must(fetcher.SetTimer(ctx, due, at))
		claim := suitetest.Must(fetcher.ReplaceTimer(ctx, due, at.Add(time.Minute), lease))
		Expect(fetcher.ReplaceTimer(ctx, due, at.Add(time.Minute), lease)).To(Equal(claim))
		w.Launch(ctx, world.Fetcher)
		cm.EventuallyHasData(ctx, "mydata", "asked for")
	})
})
