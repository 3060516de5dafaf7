package reconcile

import "testing"

func TestAMemoryIsCleanedEachTimeItDoubles(t *testing.T) {
	t.Parallel()
	checks, expired := 0, false
	m := newMemory[int](func(int) bool { checks++; return expired })
	const entries = 16 * maxMemory
	for n := range entries {
		m.put(n, n)
	}
	if checks > 2*entries {
		t.Errorf("%d entries were checked %d times", entries, checks)
	}
	expired = true
	for n := range entries {
		m.put(entries+n, n)
	}
	if len(m.entries) > entries {
		t.Errorf("%d entries are kept", len(m.entries))
	}
}
