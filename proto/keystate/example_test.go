package keystate_test

import (
	"fmt"
	"time"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/keystate"
)

func ExampleOf() {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	asked := keystate.Asked{Key: "motd", URL: "https://example.com/motd", Refresh: time.Hour}
	waiting := &keystate.Streams{Wanted: true, WantedAt: now.Add(-time.Second)}
	refreshed := &keystate.Streams{
		Wanted: true, Taken: true,
		Due: &v1.Due{Cause: v1.Cause_CAUSE_REFRESH}, SetAt: now, At: now.Add(time.Hour),
	}
	for _, streams := range []*keystate.Streams{waiting, refreshed} {
		condition := keystate.Of(asked, nil, streams, now)
		fmt.Println(condition.State, condition.Reason)
	}
	// Output:
	// pending Backlog
	// ok NotRead
}
