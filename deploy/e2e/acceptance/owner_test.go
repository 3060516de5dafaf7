package acceptance_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/status"
)

var _ = Describe("A key in a ConfigMap", func() {
	It("of another owner is kept until its owner removes it", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		page := w.Origin.Page("/ours").Says("ours")
		cm := w.Create(ctx, "theirs", world.Holding("mydata", "theirs"), world.Asking("mydata="+page.URL()))
		cm.EventuallyHasEvents(ctx, "KeyExists")
		cm.EventuallyReports(ctx, "mydata", "KeyExists")
		cm.Put(ctx, "mydata", "theirs as before")
		w.EventuallyQuiet(ctx)
		Expect(cm.Get(ctx).Data).To(HaveKeyWithValue("mydata", "theirs as before"))
		Expect(page.Hits()).To(BeZero())
		Expect(cm.Writes(ctx)).To(Equal(1), "the status about the existing key")
		Expect(cm.Status(ctx, "mydata").Why().Message).
			To(HavePrefix("key mydata already exists and is not managed by curl-me-that"))

		cm.Drop(ctx, "mydata")
		cm.EventuallyHasData(ctx, "mydata", "ours")
		cm.EventuallyReports(ctx, "mydata", "")
		w.EventuallyQuiet(ctx)
		Expect(cm.Writes(ctx)).To(Equal(2))
	})

	It("that was edited or removed by hand is repaired each time, with an Event", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		_, cm := w.Fill(ctx, "drift", "as asked", world.Holding("other", "theirs"))
		for i, change := range []func(){
			func() { cm.Put(ctx, "mydata", "changed by hand") },
			func() { cm.Put(ctx, "mydata", "once more") },
			func() { cm.Drop(ctx, "mydata") },
		} {
			change()
			cm.EventuallyHasData(ctx, "mydata", "as asked")
			w.EventuallyQuiet(ctx)
			Expect(cm.Reasons(ctx)).To(And(Not(BeEmpty()), HaveEach("Drifted")))
			Expect(cm.Writes(ctx)).To(Equal(2 + i))
		}
	})

	It("is pruned when its pair is removed, and other keys stay", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		a, b := w.Origin.Page("/a").Says("A"), w.Origin.Page("/b").Says("B")
		cm := w.Create(ctx, "pruned", world.Asking("a="+a.URL()+" b="+b.URL()), world.Holding("other", "theirs"))
		cm.EventuallyHasData(ctx, "a", "A")
		cm.EventuallyHasData(ctx, "b", "B")

		cm.Ask(ctx, "b="+b.URL())
		cm.EventuallyLacks(ctx, "a")
		w.EventuallyQuiet(ctx)
		Expect(cm.Get(ctx).Data).To(Equal(map[string]string{"b": "B", "other": "theirs"}))

		cm.Unannotate(ctx, annotation.DefaultKey)
		cm.EventuallyLacks(ctx, "b")
		w.EventuallyQuiet(ctx)
		left := cm.Get(ctx)
		Expect(left.Data).To(Equal(map[string]string{"other": "theirs"}))
		Expect(left.Annotations).NotTo(HaveKey(annotation.StatusKey))
		Expect(b.Hits()).To(Equal(1))
	})
})

// Copies and backups of an object include its status annotation.
var _ = Describe("A copy of a ConfigMap with its status", func() {
	// copied adds a status for url from another cluster: an older object with a higher fence.
	copied := func(url, body string) world.Trait {
		sum := sha256.Sum256([]byte(body))
		return world.Annotated(annotation.StatusKey, status.Status{Keys: map[string]status.Entry{"mydata": {
			URL: url, SHA256: hex.EncodeToString(sum[:]), Size: int64(len(body)), FetchedAt: time.Now().Add(-time.Hour),
			Object: "another", Fence: status.Fence{Epoch: time.Now().AddDate(1, 0, 0).UnixMilli(), Seq: 1_000_000},
		}}}.String())
	}

	It("is filled and refreshed despite the higher fence of the other cluster", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		page := w.Origin.Page("/copied").Says("now")
		cm := w.Create(ctx, "copied", world.Asking("mydata="+page.URL()), world.Annotated("x-kv8s.io/curl-refresh", "1s"),
			world.Holding("mydata", "then"), copied(page.URL(), "then"))
		cm.EventuallyHasData(ctx, "mydata", "now")
		page.Says("later")
		cm.EventuallyHasData(ctx, "mydata", "later")
		Expect(cm.Status(ctx, "mydata").Object).To(Equal(status.Mark(cm.Get(ctx).UID)))
		Expect(cm.Writes(ctx)).To(Equal(2))
		cm.HasEvents(ctx)
	})

	DescribeTable("is taken over by one write", func(ctx SpecContext, traits ...world.Trait) {
		w := env.World(ctx, world.Options{})
		page := w.Origin.Page("/same").Says("same")
		cm := w.Create(ctx, "same", append(traits, world.Asking("mydata="+page.URL()), copied(page.URL(), "same"))...)
		Eventually(ctx, func() string { return cm.Status(ctx, "mydata").Object }).Should(Equal(status.Mark(cm.Get(ctx).UID)))
		cm.EventuallyReports(ctx, "mydata", "")
		cm.EventuallyHasData(ctx, "mydata", "same")
		w.EventuallyQuiet(ctx)
		Expect(cm.Writes(ctx)).To(Equal(1))
	}, Entry("with its value", world.Holding("mydata", "same")), Entry("without it"))

	It("keeps a value that a user set", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		page := w.Origin.Page("/ours").Says("ours")
		cm := w.Create(ctx, "theirs", world.Asking("mydata="+page.URL()), world.Holding("mydata", "theirs"),
			copied(page.URL(), "ours, then"))
		cm.EventuallyHasEvents(ctx, "KeyExists")
		w.EventuallyQuiet(ctx)
		Expect(cm.Get(ctx).Data).To(HaveKeyWithValue("mydata", "theirs"))
		cm.HasEvents(ctx, "KeyExists")
		cm.Drop(ctx, "mydata")
		cm.EventuallyHasData(ctx, "mydata", "ours")
	})
})

// These specs check the table in deploy/docs/gitops.md.
var _ = Describe("A ConfigMap in Git", func() {
	var w *world.World
	var url string
	BeforeEach(func(ctx SpecContext) {
		w = env.World(ctx, world.Options{})
		url = w.Origin.Page("/hello").Says("fetched").URL()
	})
	// submit runs a kubectl command with the manifest, which contains data in flow style. It returns the error
	// output.
	submit := func(ctx context.Context, data, command string) (string, error) {
		GinkgoHelper()
		cmd := newTerminal(w).shell(ctx, "kubectl "+command+" --filename=- --output=json")
		cmd.Stdin = strings.NewReader("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: git, annotations: {" +
			annotation.DefaultKey + ": 'page=" + url + "'}}\n" + data)
		var stderr strings.Builder
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err == nil {
			object := &corev1.ConfigMap{}
			Expect(json.Unmarshal(out, object)).To(Succeed(), "%s", out)
			w.History.BySpec(object)
		}
		return stderr.String(), err
	}
	filled := func(ctx context.Context, command string) *world.ConfigMap {
		GinkgoHelper()
		suitetest.Must(submit(ctx, "", command))
		cm := w.Named("git")
		cm.EventuallyHasData(ctx, "page", "fetched")
		w.EventuallyQuiet(ctx)
		return cm
	}
	const client, server, forced = "apply", "apply --server-side", "apply --server-side --force-conflicts"

	It("with another value of a fetched key is a conflict for server-side apply", func(ctx SpecContext) {
		cm := filled(ctx, server)
		was := cm.Get(ctx).ResourceVersion
		stderr, err := submit(ctx, "data: {page: from Git}", server)
		Expect(err).To(HaveOccurred())
		Expect(stderr).To(ContainSubstring("conflict"))
		Expect(cm.Get(ctx).ResourceVersion).To(Equal(was))
	})
})
