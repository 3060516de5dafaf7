package acceptance_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
)

var _ = Describe("A hook", func() {
	It("has the new data written without waiting for a timer, with one GET for two replicas", func(ctx SpecContext) {
		const secret = "0123456789abcdef"
		w := env.World(ctx, world.Options{})
		page, cm := w.Fill(ctx, "hook", "old")
		dir := GinkgoT().TempDir()
		for name, text := range map[string]string{
			"secret": secret,
			"hooks.yaml": "hooks:\n- {name: used, url: \"" + page.URL() + "\", kind: hmac, secretFile: secret}\n" +
				"- {name: none, url: \"https://none.example.com/\", kind: hmac, secretFile: secret}\n",
		} {
			Expect(os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600)).To(Succeed())
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
		replicas := []string{env.FreeAddress(), env.FreeAddress()}
		for _, address := range replicas {
			run("curlctl", nil, "hooks", "--config="+filepath.Join(dir, "hooks.yaml"), "--hooks-listen="+address,
				"--nats-url="+w.Broker())
			Eventually(send).WithContext(ctx).WithArguments(address, "none").Should(Equal(http.StatusNoContent))
		}
		w.EventuallyQuiet(ctx)

		page.Says("new")
		began := time.Now()
		for _, address := range replicas {
			Expect(send(address, "used")).To(Equal(http.StatusAccepted))
		}
		cm.EventuallyHasData(ctx, "mydata", "new")
		AddReportEntry("from the hook to the data", time.Since(began).String())
		w.EventuallyQuiet(ctx)
		Expect(page.Hits()).To(BeNumerically("<=", 3), "one more if a window of 10 s ends in between")
	})
})
