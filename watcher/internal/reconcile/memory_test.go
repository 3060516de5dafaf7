package reconcile

import "testing"

func TestAMemoryIsCleanedEachTimeItDoubles(t *testing.T) {
	t.Parallel()
	looks, over := 0, false
	m := newMemory[int](func(int) bool { looks++; return over })
	const entries = 16 * maxMemory
	for n := range entries {
		m.put(n, n)
	}
	if looks > 2*entries {
		t.Errorf("%d entries were looked at %d times", entries, looks)
	}
	over = true
	for n := range entries {
		m.put(entries+n, n)
	}
	if len(m.of) > entries {
		t.Errorf("%d entries are kept", len(m.of))
	}
}
