package keystate_test

import (
	"fmt"
	"time"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/keystate"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
)

func ExampleOf() {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	waiting := &keystate.Fetch{URL: "https://example.com/", Wanted: now.Add(-time.Second)}
	refreshed := &keystate.Fetch{
		URL: "https://example.com/", Refresh: time.Hour, Wanted: now.Add(-time.Hour), Taken: true,
		Due: &v1.Due{Cause: v1.Cause_CAUSE_REFRESH}, SetAt: now, At: now.Add(time.Hour),
	}
	for _, fetch := range []*keystate.Fetch{waiting, refreshed} {
		condition := keystate.Of(fetch, nil, now)
		fmt.Println(condition.State, condition.Reason)
	}
	// Output:
	// pending Backlog
	// fetched
}
