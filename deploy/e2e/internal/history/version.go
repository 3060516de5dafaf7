package history

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Version is one version of a ConfigMap.
type Version struct {
	// Object as it was then.
	Object *corev1.ConfigMap
	// Deleted reports that this is the end of the object.
	Deleted bool
	// BySpec reports that a test wrote or deleted this version. All others count as written by the
	// system under test.
	BySpec bool
}

// Life has all versions of one ConfigMap, oldest first. A re-created ConfigMap starts a new life.
type Life struct {
	// UID of the ConfigMap.
	UID types.UID
	// Name of the ConfigMap.
	Name string
	// Versions in the order of their writes.
	Versions []Version
}

// Writes returns the number of versions that the system under test wrote.
func (l Life) Writes() int {
	n := 0
	for _, v := range l.Versions {
		if !v.BySpec && !v.Deleted {
			n++
		}
	}
	return n
}
