package process_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/proto/process"
	"github.com/kv8s/curl-me-that/proto/suitetest"
)

func TestProcess(t *testing.T) { suitetest.Run(t, "process") }

func readyz(h *process.Health, query string) (int, string) {
	answer := httptest.NewRecorder()
	h.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/readyz"+query, nil))
	return answer.Code, answer.Body.String()
}

var _ = Describe("readiness", func() {
	It("lists all parts on request or if one is not ready", func() {
		health := process.NewHealth()
		nats := health.Part("nats")
		cache := health.Group("watcher").Part("cache")
		code, text := readyz(health, "")
		Expect(code).To(Equal(503))
		Expect(text).To(Equal("[-]nats not ready: starting\n[-]watcher/cache not ready: starting\nnot ready"))

		nats.Ready()
		cache.NotReady("the API server does not answer")
		code, text = readyz(health, "")
		Expect(code).To(Equal(503))
		Expect(text).To(ContainSubstring("[+]nats ok\n[-]watcher/cache not ready: the API server does not answer\n"))

		cache.Ready()
		Expect(health.Ready()).To(BeTrue())
		code, text = readyz(health, "")
		Expect(code).To(Equal(200))
		Expect(text).To(Equal("ok"))
		_, text = readyz(health, "?verbose")
		Expect(text).To(Equal("[+]nats ok\n[+]watcher/cache ok\n" + "ok"))
	})
})
