package engine

import (
	"testing"
)

func TestSpellingsOfAHostShareItsSlots(t *testing.T) {
	for _, spellings := range [][]string{
		{"http://data.example.com/a", "HTTP://DATA.example.com.:80/b", "http://data.example.com.?c"},
		{"https://[::1]/", "https://[0:0:0:0:0:0:0:1]:443/"},
		{"http://192.0.2.1:8080/", "http://[::ffff:192.0.2.1]:8080/", "http://[::ffff:c000:201]:8080/"},
	} {
		for _, s := range spellings {
			if got, want := authority(s), authority(spellings[0]); got != want || got == "" {
				t.Errorf("authority(%q) = %q, want %q", s, got, want)
			}
		}
	}
	for _, denied := range []string{"", "ftp://a.example.com/", "http://me@a.example.com/", "http://a b/"} {
		if got := authority(denied); got != "" {
			t.Errorf("authority(%q) = %q", denied, got)
		}
	}
}
