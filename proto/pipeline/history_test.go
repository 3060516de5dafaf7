package pipeline_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/testkit/natstest"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

var _ = Describe("The history", func() {
	// keep adds a version of trigger n.
	keep := func(ctx context.Context, a *pipeline.Archive, of pipeline.Key, body string, n int) {
		a.Keep(ctx, of, &v1.Version{Sha256: pipeline.Digest(body), Size: int64(n)}, []byte(body), strconv.Itoa(n))
	}

	kept := func() uint64 { return natstest.State(GinkgoTB(), js, pipeline.History).Msgs }

	It("lists no version whose body was not kept", func(ctx SpecContext) {
		ensure(pipeline.Topology{HistoryBytes: 16 << 20})
		small := suitetest.Must(js.Stream(ctx, pipeline.History)).CachedInfo().Config
		small.MaxMsgSize = 1000
		Expect(js.UpdateStream(ctx, small)).Error().NotTo(HaveOccurred())
		ends := make(chan error, 3)
		archive := suitetest.Must(client.Archive(func(err error) { ends <- err }))
		keep(ctx, archive, key, strings.Repeat("x", 17<<20), 1) // more than may wait for the server
		keep(ctx, archive, key, strings.Repeat("x", 1000), 1)   // the server rejects it, and would take the version
		keep(ctx, archive, key, "body", 2)
		Eventually(func() (sizes []int64) {
			for _, v := range suitetest.Must(client.Versions(ctx, key)) {
				sizes = append(sizes, v.GetSize())
			}
			return sizes
		}).Should(Equal([]int64{2}))
		Expect([]error{<-ends, <-ends, <-ends}).To(ConsistOf(MatchError(ContainSubstring("too many")),
			MatchError(pipeline.ErrTooLarge), BeNil()), "each is reported once")
	})

	// archive returns an archive that must lose nothing.
	archive := func() *pipeline.Archive {
		return suitetest.Must(client.Archive(func(err error) {
			defer GinkgoRecover()
			Expect(err).NotTo(HaveOccurred())
		}))
	}

	It("keeps the last ten versions of a key, and each body of a namespace once", func(ctx SpecContext) {
		ensure(pipeline.Topology{HistoryBytes: 16 << 20})
		archive := archive()
		other := pipeline.Key{Namespace: key.Namespace, Name: "other", Key: "key"}
		for n := range 12 {
			body := fmt.Sprintf("body %d", n)
			for _, of := range []pipeline.Key{key, other, other} { // the last one is a repetition
				keep(ctx, archive, of, body, n)
			}
		}
		for _, of := range []pipeline.Key{key, other} {
			Eventually(client.Versions).WithContext(ctx).WithArguments(of).
				Should(ContainElement(HaveField("Size", BeEquivalentTo(11))))
		}
		Expect(kept()).To(BeEquivalentTo(12 + 2*pipeline.HistoryVersions))
		versions := suitetest.Must(client.Versions(ctx, key))
		Expect(versions).To(HaveLen(pipeline.HistoryVersions))
		Expect(versions[0].GetSize()).To(BeEquivalentTo(11), "the newest comes first")
		Expect(client.Body(ctx, key.Namespace, pipeline.Digest("body 0"))).To(BeEquivalentTo("body 0"))
		_, err := client.Body(ctx, "elsewhere", pipeline.Digest("body 0"))
		Expect(err).To(MatchError(pipeline.ErrNoBody))
		bodies := client.Bodies(func(err error) { Fail(err.Error()) })
		Expect(bodies.Has(ctx, key.Namespace, pipeline.Digest("body 0"))).To(BeTrue())
		Expect(bodies.Has(ctx, "elsewhere", pipeline.Digest("body 0"))).To(BeFalse())
	})

	It("has all versions once that is awaited, and the connection may be closed", func(ctx SpecContext) {
		ensure(pipeline.Topology{HistoryBytes: 16 << 20})
		var reports atomic.Int64
		archive := suitetest.Must(client.Archive(func(error) { reports.Add(1) }))
		const bodies = 200
		for n := range bodies {
			keep(ctx, archive, key, fmt.Sprint(strings.Repeat("x", 50_000), n), n)
		}
		archive.Wait(time.Minute)
		Expect(reports.Load()).To(BeEquivalentTo(bodies))
		Expect(kept()).To(BeEquivalentTo(bodies + pipeline.HistoryVersions))
		archive.Wait(time.Hour) // for nothing
	})

	It("rests after an error, and not because the caller has no more time", func(ctx SpecContext) {
		ensure(pipeline.Topology{HistoryBytes: 16 << 20})
		keep(ctx, archive(), key, "body", 0)
		digest := pipeline.Digest("body")
		Eventually(func() error { _, err := client.Body(ctx, key.Namespace, digest); return err }).Should(Succeed())
		var errs []error
		bodies := client.Bodies(func(err error) { errs = append(errs, err) })
		late, cancel := context.WithCancel(ctx)
		cancel()
		Expect(bodies.Has(late, key.Namespace, digest)).To(BeFalse())
		_, found := bodies.Find(late, key.Namespace, digest)
		Expect(found).To(BeFalse())
		Expect(errs).To(BeEmpty())
		Expect(bodies.Has(ctx, key.Namespace, digest)).To(BeTrue())

		js.Conn().Close()
		Expect(bodies.Has(ctx, key.Namespace, digest)).To(BeFalse())
		Expect(bodies.Paused()).To(BeTrue())
		Expect(errs).To(HaveLen(1))
	})

	It("takes no more than its bytes, and drops the oldest bodies first", func(ctx SpecContext) {
		ensure(pipeline.Topology{HistoryBytes: 16 << 20})
		archive := archive()
		stream := config(ctx, pipeline.History)
		Expect([]any{stream.MaxBytes, stream.MaxAge}).To(HaveExactElements(int64(16<<20), 30*24*time.Hour))
		body := func(n int) string { return strings.Repeat(fmt.Sprint(n%10), 900<<10) + fmt.Sprint(n) }
		for n := range 20 {
			keep(ctx, archive, key, body(n), n)
			Eventually(func() error { _, err := client.Body(ctx, key.Namespace, pipeline.Digest(body(n))); return err }).
				Should(Succeed())
		}
		Expect(client.Body(ctx, key.Namespace, pipeline.Digest(body(0)))).Error().To(MatchError(pipeline.ErrNoBody))
		for _, bytes := range []int64{32 << 20, 16 << 20} {
			suitetest.Must(pipeline.Ensure(ctx, js, pipeline.Topology{HistoryBytes: bytes}))
			Expect(config(ctx, pipeline.History).MaxBytes).To(BeEquivalentTo(32<<20), "a raised limit stays")
		}
	})

	It("needs at most 1.3 times the distinct content on disk", func(ctx SpecContext) {
		dir := GinkgoT().TempDir()
		blank(natstest.Options{StoreDir: dir})
		suitetest.Must(pipeline.Ensure(ctx, js, pipeline.Topology{HistoryBytes: 1 << 30}))
		archive := archive()
		const keys, versions, size = 100, 5, 8 << 10
		for n := range keys * versions {
			body := make([]byte, size)
			suitetest.Must(rand.Read(body))
			keep(ctx, archive, natstest.Numbered(n%keys), string(body), n)
			if n%keys == keys-1 { // the archive drops versions if too many wait
				Eventually(kept).Should(BeEquivalentTo(2 * (n + 1)))
			}
		}
		bytes := int64(0)
		Expect(filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.Contains(path, pipeline.History) {
				return err
			}
			info, err := d.Info()
			bytes += info.Size()
			return err
		})).To(Succeed())
		AddReportEntry("on disk", fmt.Sprintf("%.2f of the content", float64(bytes)/(keys*versions*size)))
		Expect(bytes).To(BeNumerically("<=", keys*versions*size*13/10))
	})

	It("is left out if the disk of the server is too small, and everything else is created", func(ctx SpecContext) {
		file := filepath.Join(GinkgoT().TempDir(), "nats.conf")
		Expect(os.WriteFile(file, []byte("jetstream { max_file_store: 32MB }"), 0o600)).To(Succeed())
		blank(natstest.Options{ConfigFile: file})
		var refusals []error
		small := pipeline.Topology{
			MaxResultBytes: 16 << 20, DeadLetterBytes: 1 << 20, HistoryBytes: 1 << 30,
			OnHistoryRejected: func(err error) { refusals = append(refusals, err) },
		}
		for range 2 {
			Expect(pipeline.Ensure(ctx, js, small)).ToNot(BeZero())
		}
		Expect(refusals).To(HaveExactElements(
			MatchError(ContainSubstring("insufficient storage")), MatchError(ContainSubstring("insufficient storage"))))
		Expect(pipeline.Differences(ctx, js, pipeline.Topology{})).To(BeEmpty())
	})

	It("is not created without bytes, and then has nothing", func(ctx SpecContext) {
		Expect(client.Versions(ctx, key)).To(BeEmpty())
		_, err := client.Body(ctx, key.Namespace, pipeline.Digest("any"))
		Expect(err).To(MatchError(pipeline.ErrNoBody))
		Expect(client.Bodies(func(err error) { Fail(err.Error()) }).Has(ctx, key.Namespace, "any")).To(BeFalse())
		failed := make(chan error, 2)
		archive := suitetest.Must(client.Archive(func(err error) { failed <- err }))
		keep(ctx, archive, key, "any", 0)
		Eventually(failed).Should(Receive())
	})
})
