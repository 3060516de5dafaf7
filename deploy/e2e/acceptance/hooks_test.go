package acceptance_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/origin"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/process"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
)

var _ = Describe("A hook", func() {
	It("has the new data written within 100 ms, with one GET for two replicas", func(ctx SpecContext) {
		const n, secret = 20, "0123456789abcdef"
		w := env.World(ctx, world.Options{})
		dir := GinkgoT().TempDir()
		Expect(os.WriteFile(filepath.Join(dir, "secret"), []byte(secret), 0o600)).To(Succeed())
		file, keys, pages := "hooks:\n", map[string]*world.ConfigMap{}, map[string]*origin.Page{}
		for i := range n { // a hook each, because each waits for 10 s
			name := fmt.Sprintf("hook-%02d", i)
			page, cm := w.Fill(ctx, name, "old")
			file += fmt.Sprintf("- {name: %s, url: %q, kind: hmac, secretFile: secret}\n", name, page.URL())
			keys[name], pages[name] = cm, page
		}
		file += "- {name: none, url: \"https://none.example.com/\", kind: hmac, secretFile: secret}\n"
		Expect(os.WriteFile(filepath.Join(dir, "hooks.yaml"), []byte(file), 0o600)).To(Succeed())
		replicas := []string{env.FreeAddress(), env.FreeAddress()}
		for _, address := range replicas {
			p := suitetest.Must(process.Start(process.Program{Name: "curlctl", Path: env.Program("curlctl"), Args: []string{
				"hooks", "--config=" + filepath.Join(dir, "hooks.yaml"), "--hooks-listen=" + address,
				"--nats-url=" + w.Broker(),
			}}))
			DeferCleanup(p.Kill)
		}
		mac := hmac.New(sha256.New, []byte(secret))
		mac.Write([]byte("{}"))
		send := func(address, name string) int {
			r := suitetest.Must(http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+"/hooks/"+name,
				strings.NewReader("{}")))
			r.Header.Set("X-Hub-Signature-256", "sha256="+hex.EncodeToString(mac.Sum(nil)))
			response, err := http.DefaultClient.Do(r)
			if err != nil {
				return 0
			}
			_ = response.Body.Close()
			return response.StatusCode
		}
		for _, address := range replicas {
			Eventually(send).WithContext(ctx).WithArguments(address, "none").Should(Equal(http.StatusNoContent))
		}
		w.EventuallyQuiet(ctx)

		var took []time.Duration
		gets := 0
		for name, cm := range keys {
			page := pages[name].Says("new")
			gets -= page.Hits()
			began := time.Now()
			for _, address := range replicas {
				Expect(send(address, name)).To(Equal(http.StatusAccepted))
			}
			Eventually(func() string { return cm.Get(ctx).Data["mydata"] }).WithContext(ctx).
				WithPolling(2 * time.Millisecond).Should(Equal("new"))
			took = append(took, time.Since(began))
		}
		w.EventuallyQuiet(ctx)
		for _, page := range pages {
			gets += page.Hits()
		}
		Expect(gets).To(Or(Equal(n), Equal(n+1)), "a pair of hooks may fall into two windows of 10 s")
		slices.Sort(took)
		AddReportEntry("from the hook to the data", fmt.Sprint(took))
		Expect(took[n/2]).To(BeNumerically("<=", 100*time.Millisecond))
	})
})
