package inbox

import (
	"testing"
	"time"
)

func TestASlowNamespaceMayUseThreeQuartersOfTheSlots(t *testing.T) {
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
		s := newSlots(256, 64<<20)
		s.acquire("a", 0)
		s.acquire("a", tt.bytes)
		s.release("a", 0, tt.took)
		got := 1
		for got < 256 && s.acquire("a", tt.bytes) {
			got++
		}
		if got != tt.want || !s.acquire("b", tt.bytes) {
			t.Errorf("%s: a has %d slots, want %d", name, got, tt.want)
		}
		for range got {
			s.release("a", tt.bytes, slow+1)
		}
		s.release("b", tt.bytes, 0)
		if len(s.usage) > 0 || !s.acquire("a", 0) {
			t.Errorf("%s: %d namespaces are remembered", name, len(s.usage))
		}
	}
}
