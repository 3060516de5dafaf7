package inbox

import (
	"testing"
	"time"
)

func TestANamespaceWhoseResultsAreSlowHasThreeQuartersOfThePlaces(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		bytes int
		took  time.Duration
		want  int
	}{
		"slow":              {1, slow + 1, 192},
		"slow, large":       {1 << 20, slow + 1, 48},
		"as fast as others": {1, slow, 256},
	} {
		p := newPlaces(256, 64<<20)
		p.take("a", 0)
		p.take("a", tt.bytes)
		p.leave("a", 0, tt.took)
		got := 1
		for got < 256 && p.take("a", tt.bytes) {
			got++
		}
		if got != tt.want || !p.take("b", tt.bytes) {
			t.Errorf("%s: a has %d places, want %d", name, got, tt.want)
		}
		for range got {
			p.leave("a", tt.bytes, slow+1)
		}
		p.leave("b", tt.bytes, 0)
		if len(p.of) > 0 || !p.take("a", 0) {
			t.Errorf("%s: %d namespaces are remembered", name, len(p.of))
		}
	}
}
