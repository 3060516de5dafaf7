package acceptance_test

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/signature"
	"github.com/kv8s/curl-me-that/proto/suitetest"
)

var _ = Describe("The signing key of the watcher", func() {
	// replace replaces a file atomically, as kubelet and curlctl do.
	replace := func(file string, content []byte) {
		GinkgoHelper()
		next := filepath.Join(GinkgoT().TempDir(), "next")
		Expect(os.WriteFile(next, content, 0o600)).To(Succeed())
		Expect(os.Rename(next, file)).To(Succeed())
	}
	read := func(file string) []byte {
		GinkgoHelper()
		return suitetest.Must(os.ReadFile(file))
	}

	It("is rotated without restarts, and an invalid file keeps the old key in use", func(ctx SpecContext) {
		seed, trusted, err := signature.WriteFiles(GinkgoT().TempDir())
		Expect(err).NotTo(HaveOccurred())
		nextSeed, next, err := signature.WriteFiles(GinkgoT().TempDir())
		Expect(err).NotTo(HaveOccurred())
		w := env.World(ctx, world.Options{Without: world.Services()})
		headers := filepath.Join(GinkgoT().TempDir(), "headers.yaml")
		Expect(os.WriteFile(headers, fmt.Appendf(nil, `- {host: "*", ports: [%d], schemes: [http], `+
			`namespaces: ["*"], headers: {Authorization: Bearer secret}}`,
			w.Origin.Port()), 0o600)).To(Succeed())
		watcher := w.Launch(ctx, world.Watcher, "--signing-key="+seed)
		fetcher := w.Launch(ctx, world.Fetcher, "--trusted-keys="+trusted, "--header-file="+headers)
		writer := w.Launch(ctx, world.Writer, "--trusted-keys="+trusted)
		for _, s := range []*world.Service{watcher, fetcher, writer} {
			s.EventuallyReady(ctx)
		}
		isServed := func(name string) {
			GinkgoHelper()
			page := w.Origin.Page("/" + name).Says(name)
			w.Create(ctx, name, world.Asking("mydata="+page.URL())).EventuallyHasData(ctx, "mydata", name)
			Expect(page.Authorized()).To(Equal(page.Hits()), "the fetcher believes the want")
			Expect(writer.Log.Matching("before they are written")).To(BeEmpty(), "and so does the writer")
		}
		eventuallyLogged := func(line string) {
			GinkgoHelper()
			for _, s := range []*world.Service{fetcher, writer} {
				Eventually(ctx, func() []string { return s.Log.Matching(line + " of file " + trusted) }).WithTimeout(time.Minute).
					Should(HaveLen(1), s.Name)
			}
		}
		isServed("before")

		replace(trusted, append(read(next), "\n"+string(read(trusted))...))
		eventuallyLogged("loaded the new content")
		isServed("between")
		watcher.ShouldStop(ctx)
		w.Launch(ctx, world.Watcher, "--signing-key="+nextSeed).EventuallyReady(ctx)
		isServed("after")

		replace(trusted, []byte("no key\n"))
		eventuallyLogged("keeping the last valid content")
		isServed("meanwhile")
		Expect(writer.Log.Matching("keeping")).
			To(ConsistOf(And(ContainSubstring(trusted),
				ContainSubstring("it must hold one to 2 NKey user public keys, one per line"))))
		Expect(w.Stored(ctx, pipeline.Failures, ">")).To(BeZero())
	})
})
