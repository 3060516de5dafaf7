package system

import (
	"bytes"
	"runtime/pprof"
	"testing"
)

func TestParseAllocated(t *testing.T) {
	var profile bytes.Buffer
	if err := pprof.Lookup("heap").WriteTo(&profile, 1); err != nil {
		t.Fatal(err)
	}
	if got, err := parseAllocated(profile.Bytes()); err != nil || got < 1000 {
		t.Errorf("got %d bytes, %v, from a profile of this process", got, err)
	}
	for name, text := range map[string]string{"another text": "404 page not found", "no number": "\n# TotalAlloc = many\n"} {
		if got, err := parseAllocated([]byte(text)); err == nil {
			t.Errorf("%s: got %d, want an error", name, got)
		}
	}
}
