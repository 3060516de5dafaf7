package process_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/proto/process"
)

func TestProcess(t *testing.T) { suitetest.Run(t, "process") }

func readyz(h *process.Health, query string) (int, string) {
	response := httptest.NewRecorder()
	h.ServeHTTP(response, httptest.NewRequest(http.MethodGet, "/readyz"+query, nil))
	return response.Code, response.Body.String()
}

var _ = Describe("readiness", func() {
	It("lists all parts with ?verbose, or if one is not ready", func() {
		health := process.NewHealth()
		nats := health.Part("nats")
		cache := health.Group("watcher").Part("cache")
		code, text := readyz(health, "")
		Expect(code).To(Equal(503))
		Expect(text).To(Equal("[-]nats not ready: starting\n[-]watcher/cache not ready: starting\nnot ready"))

		nats.Ready()
		cache.NotReady("the API server does not respond")
		code, text = readyz(health, "")
		Expect(code).To(Equal(503))
		Expect(text).To(ContainSubstring("[+]nats ok\n[-]watcher/cache not ready: the API server does not respond\n"))

		cache.Ready()
		Expect(health.Ready()).To(BeTrue())
		code, text = readyz(health, "")
		Expect(code).To(Equal(200))
		Expect(text).To(Equal("ok"))
		_, text = readyz(health, "?verbose")
		Expect(text).To(Equal("[+]nats ok\n[+]watcher/cache ok\n" + "ok"))
	})
})
