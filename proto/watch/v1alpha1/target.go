package v1alpha1

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
)

// maxLabelBytes is the maximum length of a label value.
const maxLabelBytes = 63

// ConfigMapName returns the name of a Watcher's ConfigMap.
func (w *Watcher) ConfigMapName() string {
	return cmp.Or(w.Spec.Target.Name, w.Name+"-config")
}

// LabelValue returns the value of WatcherLabel for a Watcher: its name or, if that is too long for
// a label, the start of the name and a digest.
func LabelValue(name string) string {
	if len(name) <= maxLabelBytes {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	digest := hex.EncodeToString(sum[:8])
	return name[:maxLabelBytes-len(digest)-1] + "-" + digest
}
