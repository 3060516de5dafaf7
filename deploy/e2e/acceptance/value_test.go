package acceptance_test

import (
	"bytes"
	"os"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/origin"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/proto/annotation"
)

var _ = Describe("A fetched value", func() {
	It("arrives within 5 s, in one write that touches nothing else", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		w.Origin.Page("/").Says("hello there")
		cm := w.Create(ctx, "cool", world.Asking("my-cool-value=http://"+w.Origin.Address()),
			world.Holding("other", "  kept\r\nas it is \t"), world.Labelled("app", "cool"),
			world.Annotated("example.com/note", "ünïcode ✓"))
		before := cm.Get(ctx)

		cm.EventuallyHasDataWithin(ctx, 5*time.Second, "my-cool-value", "hello there")
		w.EventuallyQuiet(ctx)

		after := cm.Get(ctx)
		Expect(after.Data).To(HaveLen(2))
		Expect(after.Data).To(HaveKeyWithValue("other", before.Data["other"]))
		Expect(after.Labels).To(Equal(before.Labels))
		Expect(after.Annotations).To(HaveKey(annotation.StatusKey))
		delete(after.Annotations, annotation.StatusKey)
		Expect(after.Annotations).To(Equal(before.Annotations))
		Expect(cm.Writes(ctx)).To(Equal(1))
		Expect(w.Origin.Hits()).To(Equal(1))
		cm.Tells(ctx)
	})

	It("arrives for each of several pairs, separated by spaces and newlines", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		a, b, c := w.Origin.Page("/a").Says("A"), w.Origin.Page("/b").Says("B"), w.Origin.Page("/c").Says("C")
		cm := w.Create(ctx, "several", world.Asking("\n  a="+a.URL()+"\n  b.txt="+b.URL()+"?x=1&y=2 \t c_-C="+c.URL()+"\n"))

		cm.EventuallyHasData(ctx, "a", "A")
		cm.EventuallyHasData(ctx, "b.txt", "B")
		cm.EventuallyHasData(ctx, "c_-C", "C")
		w.EventuallyQuiet(ctx)
		Expect(cm.Writes(ctx)).To(BeNumerically("<=", 3))
	})

	It("arrives for the older spelling of the annotation", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		page := w.Origin.Page("/old").Says("spelled differently")
		cm := w.Create(ctx, "older", world.Annotated(annotation.LegacyKey, "mydata="+page.URL()))
		cm.EventuallyHasData(ctx, "mydata", "spelled differently")
	})

	It("is fetched over HTTPS if the URL has no scheme", func(ctx SpecContext) {
		secure := origin.StartTLS(nil)
		DeferCleanup(secure.Close)
		bundle := filepath.Join(GinkgoT().TempDir(), "ca.pem")
		Expect(os.WriteFile(bundle, secure.Certificate(), 0o600)).To(Succeed())
		secure.Page("/s").Says("well kept")
		w := env.World(ctx, world.Options{Flags: map[string][]string{world.Fetcher: {"--ca-bundle=" + bundle}}})
		w.Trust(secure)
		// The certificate is for this name and for addresses. The flag lets the name resolve to
		// loopback in this spec only.
		cm := w.Create(ctx, "secure", world.Asking("mydata="+secure.PageByAddress("/s")))
		cm.EventuallyHasData(ctx, "mydata", "well kept")
	})

	It("is stored in binaryData if it is not text, and moves to data when it becomes text", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		body := bytes.Repeat([]byte{0, 1, 0xff, '\n', 0x80}, 4000)
		blob, text := w.Origin.Page("/blob").Serves(body), w.Origin.Page("/text").Says("this is text")
		cm := w.Create(ctx, "bytes", world.Asking("mixed="+blob.URL()))
		cm.EventuallyHasBinary(ctx, "mixed", body)
		Expect(cm.Get(ctx).Data).NotTo(HaveKey("mixed"))

		cm.Ask(ctx, "mixed="+text.URL())
		cm.EventuallyHasData(ctx, "mixed", "this is text")
		Expect(cm.Get(ctx).BinaryData).To(BeEmpty())

		cm.Ask(ctx, "mixed="+blob.URL())
		cm.EventuallyHasBinary(ctx, "mixed", body)
		Expect(cm.Get(ctx).Data).To(BeEmpty())
		w.EventuallyQuiet(ctx)
		Expect(cm.Writes(ctx)).To(Equal(3))
	})

	It("arrives and is kept in a ConfigMap that was created empty and annotated later", func(ctx SpecContext) {
		// Such an object has no managedFields, and a patch adds none. Only its data shows that a
		// key was edited.
		w := env.World(ctx, world.Options{})
		page := w.Origin.Page("/late").Says("late but sure")
		cm := w.Create(ctx, "empty")
		cm.Ask(ctx, "mydata="+page.URL())
		cm.EventuallyHasData(ctx, "mydata", "late but sure")
		w.EventuallyQuiet(ctx)
		cm.Put(ctx, "mydata", "changed by hand")
		cm.EventuallyHasData(ctx, "mydata", "late but sure")
	})
})
