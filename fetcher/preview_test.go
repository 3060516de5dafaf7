package fetcher_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/kv8s/curl-me-that/fetcher"
)

func TestPreview(t *testing.T) {
	t.Parallel()
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/" {
			http.NotFound(w, r)
			return
		}
		_, _ = io.WriteString(w, "hello")
	}))
	t.Cleanup(site.Close) // after the parallel cases
	closed, open := fetcher.DefaultConfig(), fetcher.DefaultConfig()
	open.Egress.AllowCIDRs = []string{"127.0.0.0/8"}
	for name, c := range map[string]struct {
		config  fetcher.Config
		url     string
		fetch   bool
		allowed bool
		failure string
		size    int
	}{
		"denied":     {config: closed, url: site.URL, fetch: true},
		"not in DNS": {config: closed, url: "http://nothing.example.invalid/", failure: "DNSFailed"},
		"no fetch":   {config: open, url: site.URL, allowed: true},
		"fetched":    {config: open, url: site.URL, fetch: true, allowed: true, size: 5},
		"bad status": {config: open, url: site.URL + "/none", fetch: true, allowed: true, failure: "BadStatus"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := c.config.Preview(t.Context(), fetcher.PreviewRequest{Namespace: "default", URL: c.url, Fetch: c.fetch})
			if err != nil {
				t.Fatal(err)
			}
			if got.Allowed != c.allowed || got.Failure != c.failure || got.Size != c.size || got.Reason == "" {
				t.Errorf("got %+v", got)
			}
		})
	}
}
