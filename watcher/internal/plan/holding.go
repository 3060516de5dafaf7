package plan

import (
	"github.com/kv8s/curl-me-that/proto/annotation"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/status"
	"github.com/kv8s/curl-me-that/watcher/internal/annotated"
)

// Holding is what the metadata of an object shows of a key that it asks for.
// Only what Kubernetes is known to hold counts as held; that a timer exists is no
// evidence of it.
type Holding int

const (
	// NotHeld: the key does not hold the body that is asked for, or that cannot
	// be known, or later attempts fail.
	NotHeld Holding = iota
	// Held: the status written on this object names the URL and the digest, and
	// by the record of owners the key has not been written since.
	Held
	// LeftAlone: a fetch would change nothing until the object changes.
	LeftAlone
)

// HoldingOf returns what an object shows of one of its pairs.
func HoldingOf(o *annotated.Object, pair annotation.Pair) Holding {
	entry, owner := o.Status.Of(pair.Key), o.Owner(pair.Key)
	switch {
	case !entry.Written() && owner.State == annotation.Foreign:
		return LeftAlone
	case entry.Copied(o.UID):
		return NotHeld
	case entry.Error == pipeline.Reason(v1.FailureClass_FAILURE_CLASS_IMMUTABLE):
		return LeftAlone
	case names(entry, o.Request, pair) && intact(entry, owner) && !entry.Failing():
		return Held
	default:
		return NotHeld
	}
}

// names reports whether an entry is about the requested body.
func names(entry status.Entry, r annotation.Request, pair annotation.Pair) bool {
	sha256 := r.SHA256[pair.Key]
	return entry.Written() && entry.URL == pair.URL && (sha256 == "" || sha256 == entry.SHA256) &&
		entry.Rules == r.Rules[pair.Key].Digest()
}

// intact reports whether the key is as the entry describes it.
func intact(entry status.Entry, owner annotation.Ownership) bool {
	return owner.State == annotation.Ours || owner.Fingerprint == entry.Drift
}
