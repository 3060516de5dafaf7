package annotated_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/proto/status"
	"github.com/kv8s/curl-me-that/watcher/internal/annotated"
)

func TestEntriesEqualTheStatus(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 22, 15, 0, 0, 0, time.UTC)
	digest := strings.Repeat("0af1", 16)
	whole := status.Entry{
		URL: "https://a.example/x", SHA256: digest, Size: 7, ChangedAt: at,
		Binary: true, Error: "Timeout", ErrorURL: "https://a.example/y", Since: at.Add(time.Hour), Attempts: 3,
		GaveUp: true,
		Drift:  "none", UIDMark: "12345678", Fence: status.Fence{Epoch: 5, Seq: 6},
	}
	entries := map[string]status.Entry{
		"whole": whole, "empty": {},
		"well":              {URL: whole.URL, SHA256: digest, ChangedAt: at, UIDMark: "12345678"},
		"recovered":         {URL: whole.URL, SHA256: digest, Since: at},
		"never written":     {Error: "DNSError", Since: at, Attempts: 1},
		"copied, short uid": {SHA256: digest, UIDMark: "uid"},
		"before 1970":       {SHA256: digest, ChangedAt: time.Unix(-1, 0).UTC()},
		"explained": {
			Error: "BadStatus", GaveUp: true,
			Explanation: &status.Explanation{HTTPStatus: 404, Message: "a.example responded with 404", NextTry: at},
		},
		"in 1970": {SHA256: digest, ChangedAt: time.Unix(0, 0).UTC()},
	}
	packed := annotated.EntriesOf(status.Status{Keys: entries}, nil)
	g := NewWithT(t)
	g.Expect(maps.Equal(packed.Status().Keys, entries)).To(BeTrue(), "%+v", packed.Status().Keys)
	g.Expect(slices.Collect(packed.Keys())).To(Equal(slices.Sorted(maps.Keys(entries))))
	g.Expect(packed.Len()).To(Equal(len(entries)))
	for key, entry := range entries {
		g.Expect(packed.Of(key)).To(Equal(entry), key)
	}
	g.Expect(packed.Of("another")).To(BeZero())
}
