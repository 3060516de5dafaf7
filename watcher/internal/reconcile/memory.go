package reconcile

import "maps"

// maxMemory is how many entries of the past are kept without a look at which of
// them no longer matter.
const maxMemory = 4096

// memory is what is known of the past. Entries that no longer matter are looked
// for each time that it has doubled, so that the looks cost no more than what
// was put in.
type memory[K comparable, V any] struct {
	of map[K]V
	// lookAt is how many entries it has at the next look.
	lookAt int
	over   func(V) bool
}

func newMemory[K comparable, V any](over func(V) bool) memory[K, V] {
	return memory[K, V]{of: map[K]V{}, lookAt: maxMemory, over: over}
}

// put adds or replaces an entry.
func (m *memory[K, V]) put(key K, entry V) {
	if len(m.of) >= m.lookAt {
		maps.DeleteFunc(m.of, func(_ K, v V) bool { return m.over(v) })
		m.lookAt = max(maxMemory, 2*len(m.of))
	}
	m.of[key] = entry
}
