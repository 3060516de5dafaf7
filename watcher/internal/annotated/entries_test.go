package annotated_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kv8s/curl-me-that/proto/status"
	"github.com/kv8s/curl-me-that/watcher/internal/annotated"
)

func TestEntriesAreThoseOfTheAnnotation(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 22, 15, 0, 0, 0, time.UTC)
	digest := strings.Repeat("0af1", 16)
	whole := status.Entry{
		URL: "https://a.example/x", SHA256: digest, Size: 7, FetchedAt: at, ETag: `W/"a b"`,
		LastModified: "Sun, 22 Nov 2026 15:00:00 GMT",
		Binary:       true, Error: "Timeout", ErrorURL: "https://a.example/y", Since: at.Add(time.Hour), Attempts: 3,
		GaveUp: true,
		Drift:  "none", Object: "12345678", Fence: status.Fence{Epoch: 5, Seq: 6},
	}
	entries := map[string]status.Entry{
		"whole": whole, "empty": {},
		"well":              {URL: whole.URL, SHA256: digest, FetchedAt: at, Object: "12345678"},
		"recovered":         {URL: whole.URL, SHA256: digest, Since: at},
		"never written":     {Error: "DNSError", Since: at, Attempts: 1},
		"copied, short uid": {SHA256: digest, Object: "uid"},
		"only modified":     {SHA256: digest, LastModified: whole.LastModified},
		"before 1970":       {SHA256: digest, FetchedAt: time.Unix(-1, 0).UTC()},
		"explained": {
			Error: "BadStatus", GaveUp: true,
			Explanation: &status.Explanation{HTTPStatus: 404, Message: "a.example responded with 404", NextTry: at},
		},
		"in 1970": {SHA256: digest, FetchedAt: time.Unix(0, 0).UTC()},
	}
	packed := annotated.EntriesOf(status.Status{Keys: entries}, nil)
	if got := packed.Status().Keys; !maps.Equal(got, entries) {
		t.Errorf("got %+v", got)
	}
	if got := slices.Collect(packed.Keys()); !slices.Equal(got, slices.Sorted(maps.Keys(entries))) ||
		packed.Len() != len(entries) {
		t.Errorf("keys %q", got)
	}
	for key, entry := range entries {
		if got := packed.Of(key); got != entry {
			t.Errorf("%s: got %+v, want %+v", key, got, entry)
		}
	}
	if got := packed.Of("another"); got != (status.Entry{}) {
		t.Errorf("got %+v", got)
	}
}
