package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/origin"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
)

func TestOrigin(t *testing.T) { suitetest.Run(t, "command origin") }

var _ = Describe("The origin's built-in site", func() {
	ask := func(front http.Handler, path string) (int, string) {
		answer := httptest.NewRecorder()
		front.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, path, http.NoBody))
		body := suitetest.Must(io.ReadAll(answer.Body))
		return answer.Code, string(body)
	}

	DescribeTable("serves people", func(path string, status int, words string) {
		code, body := ask(front(origin.NewSite("")), path)
		Expect(code).To(Equal(status))
		Expect(body).To(MatchRegexp(words))
	},
		Entry(nil, "/", 200, "/joke"),
		Entry(nil, "/joke", 200, "."),
		Entry(nil, "/nothing", 404, "not found"),
	)
})
