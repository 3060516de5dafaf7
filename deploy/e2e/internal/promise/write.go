package promise

import (
	"crypto/sha256"
	"encoding/hex"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/status"
)

// value is the content of a key.
type value struct {
	body   string
	binary bool
}

func values(object *corev1.ConfigMap) map[string]*value {
	all := map[string]*value{}
	for key, text := range object.Data {
		all[key] = &value{body: text}
	}
	for key, body := range object.BinaryData {
		all[key] = &value{body: string(body), binary: true}
	}
	return all
}

// write is one write of the system, with the versions before and after it.
type write struct {
	uid        types.UID
	was, is    map[string]*value
	had, has   map[string]status.Entry
	request    annotation.Request
	unreadable bool
}

// breach is a promise that a write broke for a key.
type breach struct{ promise, what string }

// breaches returns the promises that the change of one key breaks.
func (w *write) breaches(key string, served func(url string, body []byte) bool) []breach {
	url, asked := w.request.URL(key)
	if w.is[key] == nil {
		return w.removalBreaches(key, asked)
	}
	var found []breach
	add := func(promise, what string) { found = append(found, breach{promise, what}) }
	body := []byte(w.is[key].body)
	switch {
	case !asked || w.unreadable:
		add("S1", "was written without a request")
	case w.request.Suspended:
		add("S2", "was written while the object is suspended")
	case w.has[key].URL != url:
		add("S2", "has the body of another URL than requested")
	case w.request.Rules[key].Select == "" && !served(url, body): // a selection is only a part of it
		add("S5", "has a body that its URL never served with status 200")
	}
	sum := sha256.Sum256(body)
	digest := hex.EncodeToString(sum[:])
	if demanded := w.request.SHA256[key]; demanded != "" && demanded != digest {
		add("S2", "differs from the required digest")
	}
	if w.has[key].SHA256 != digest {
		add("S2", "differs from the digest in its status")
	}
	if w.is[key].binary == utf8.Valid(body) {
		add("S1", "is in data instead of binaryData, or the reverse")
	}
	if w.was[key] != nil && !w.ours(key) {
		add("S4", "was overwritten, although the system never wrote it")
	}
	return found
}

// ours reports whether the system wrote the value of a key, or another client changed such a value.
// A status copied from another object is evidence only for the same value.
func (w *write) ours(key string) bool {
	entry := w.had[key]
	if !entry.Copied(w.uid) || w.was[key] == nil {
		return entry.Written()
	}
	sum := sha256.Sum256([]byte(w.was[key].body))
	return entry.SHA256 == hex.EncodeToString(sum[:])
}

func (w *write) removalBreaches(key string, asked bool) []breach {
	switch {
	case w.unreadable || w.request.Suspended:
		return []breach{{"S5", "was removed, although the annotation is ambiguous"}}
	case asked || w.request.Names(key):
		return []breach{{"S5", "was removed, although it is requested"}}
	case !w.ours(key):
		return []breach{{"S4", "was removed, although the system never wrote it"}}
	}
	return nil
}
