package process_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/process"
)

func TestALineHasNoColoursWithoutATerminal(t *testing.T) {
	for _, format := range []string{"json", "console", "auto"} {
		var out bytes.Buffer
		log, err := (&process.LogOptions{Level: "info", Format: format}).New(&out, "fetcher")
		if err != nil {
			t.Fatal(err)
		}
		line := process.LogKey(log.Info(), pipeline.Key{Namespace: "shop", Name: "prices", Key: "list.json"})
		process.LogDuration(line, "next", 4*time.Second+300*time.Microsecond).Msg("failed, retrying with back-off")
		got := out.String()
		if strings.Count(got, "\n") != 1 || strings.Contains(got, "\x1b") {
			t.Errorf("%s: %q", format, got)
		}
		for _, part := range []string{"shop/prices/list.json", "4s", "failed, retrying with back-off"} {
			if !strings.Contains(got, part) {
				t.Errorf("%s: %q has no %q", format, got, part)
			}
		}
	}
}
