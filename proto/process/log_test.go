package process_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/process"
)

func TestConsoleLinesFitInto120Columns(t *testing.T) {
	const text = "failed, retrying with back-off"
	reason := "host ist-älter-als-gedacht.example.com responded with 429 and requested a pause of 20m, which is longer " +
		"than all its other pauses"
	log := func(format string) string {
		var out bytes.Buffer
		log, err := (&process.LogOptions{Level: "info", Format: format}).New(&out, "fetcher")
		if err != nil {
			t.Fatal(err)
		}
		line := process.LogKey(log.Info(), pipeline.Key{Namespace: "shop", Name: "prices-of-today", Key: "list.json"})
		line = process.LogDuration(line.Str("host", "ist-älter-als-gedacht.example.com"), "next",
			4*time.Second+300*time.Microsecond)
		line.Str("trace", "0af7651916cd43dd8448eb211c80319c").Str("error", reason).Msg(text)
		return out.String()
	}
	if got := log("json"); strings.Count(got, "\n") != 1 {
		t.Errorf("JSON is not one line: %s", got)
	}
	got := log("console")
	if strings.Count(got, "\n") != 1 || strings.Contains(got, "\x1b") {
		t.Errorf("a line is wrapped or coloured without a terminal: %q", got)
	}
	got = process.Wrap(got, 120, strings.Repeat(" ", strings.Index(got, text)))
	lines := strings.Split(strings.TrimSuffix(got, "\n"), "\n")
	if len(lines) < 2 {
		t.Errorf("the line is too short to be wrapped: %q", got)
	}
	indent := strings.Repeat(" ", strings.Index(lines[0], text))
	for i, line := range lines {
		if n := utf8.RuneCountInString(line); n > 120 {
			t.Errorf("%d columns: %s", n, line)
		}
		if i > 0 && (!strings.HasPrefix(line, indent) || strings.HasPrefix(line, indent+" ")) {
			t.Errorf("line %d is not aligned with the text: %q", i, line)
		}
	}
	words := strings.Fields(got)
	for _, word := range append(strings.Fields(text+" "+strings.TrimPrefix(reason, "host ")),
		"key=shop/prices-of-today/list.json", "next=4s", "trace=0af7651916cd43dd8448eb211c80319c") {
		if !slices.ContainsFunc(words, func(w string) bool { return strings.Trim(w, `"`) == word }) {
			t.Errorf("%q is lost or broken: %s", word, got)
		}
	}
}
