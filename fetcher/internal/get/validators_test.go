package get

import (
	"strings"
	"testing"
)

func TestValidators(t *testing.T) {
	for text, want := range map[string]bool{
		`"v1"`: true, `W/"v1"`: true, `""`: false, `"!#~"`: true,
		"": false, `"`: false, "v1": false, `v1"`: false, `"v1`: false, `w/"v1"`: false, `"a"b"`: false, "\"a\nb\"": false,
		`"a b"`:    false,
		"\"\xff\"": false, `"` + strings.Repeat("x", 300) + `"`: false,
	} {
		if got := validETag(text) != ""; got != want {
			t.Errorf("validETag(%q) = %t", text, got)
		}
	}
	for text, want := range map[string]bool{
		"Sun, 06 Nov 1994 08:49:37 GMT": true, "Sunday, 06-Nov-94 08:49:37 GMT": true, "": false, "now": false,
	} {
		if got := validDate(text) != ""; got != want {
			t.Errorf("validDate(%q) = %t", text, got)
		}
	}
}
