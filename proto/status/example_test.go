package status_test

import (
	"fmt"

	"github.com/kv8s/curl-me-that/proto/status"
)

func ExampleParse() {
	found, err := status.Parse(`{"motd":{"url":"https://example.com/motd","error":"BadStatus",
		"since":"2026-01-02T03:04:05Z","attempts":6,"gaveUp":true}}`)
	if err != nil {
		panic(err)
	}
	entry := found.Keys["motd"]
	fmt.Println(entry.Error, "since", entry.Since, "after", entry.Attempts, "attempts; a body was written:",
		entry.Written())
	// Output:
	// BadStatus since 2026-01-02 03:04:05 +0000 UTC after 6 attempts; a body was written: false
}
