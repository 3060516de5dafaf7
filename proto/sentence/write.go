package sentence

import (
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/failure"
)

// UpdateAvailable says that a pinned key waits for the approval of other content.
func UpdateAvailable(url, digest string) string {
	return Host(url) + " has other content (sha256 " + digest + ")"
}

// KeyExists is the sentence about a key that somebody else wrote.
func KeyExists(key string) string {
	return "key " + key + " already exists and is not managed by curl-me-that; " +
		"remove it from the ConfigMap, or choose another key"
}

// ChangedBy says that another field manager (empty: unknown) has changed a key.
func ChangedBy(key, manager string) string {
	if manager == "" {
		return "key " + key + " was changed by somebody else"
	}
	return "key " + key + " was changed by field manager " + manager
}

// Contested says the same, and what to do.
func Contested(key, manager string) string {
	return ChangedBy(key, manager) + "; remove the key from its manifest"
}

// KeyOfOther is the sentence about a key that another installation keeps in sync.
func KeyOfOther(key, annotation string) string {
	return "key " + key + " is kept in sync for annotation " + annotation + "; remove one of the two pairs, or, if no " +
		"installation reads that annotation, run `curlctl hand-over`"
}

// BecomesHTML says why an HTML page is not written to a key.
func BecomesHTML(url, key string) string {
	return Host(url) + " responded with an HTML page, perhaps a login or an error page, and key " + key +
		" holds something else, which it keeps; set curl-allow-html to true if the page is meant"
}

// NoRoom says why the status of a ConfigMap is not written.
const NoRoom = "the annotations of the ConfigMap leave no room for curl-status (limit 256 KiB)"

// Failed says why a ConfigMap is not written although the API server is ready.
const Failed = "" +
	"the API server could not write the ConfigMap, perhaps because an admission webhook is slow or broken; " +
	"ask the operator, the log of the writer has the error"

// Stripped says why the state of a ConfigMap is unknown.
const Stripped = "" +
	"an admission policy removes curl-status, so changes are found late and removed pairs keep their values; " +
	"exempt x-kv8s.io/curl-status from it"

// Altered says why a key has another value than the body.
func Altered(key string) string {
	return "an admission policy or webhook changes the value of key " + key + " in each write; " +
		"exempt the ConfigMap from it"
}

// ObjectTooLarge says why a body of that size is not written to a key of a ConfigMap with much metadata.
func ObjectTooLarge(key string, size int) string {
	return "the ConfigMap with its metadata and the body for key " + key + " (" + bytes(int64(size)) +
		") is too large for etcd (limit 1.5 MiB) or for a request (3 MiB); " +
		"remove metadata, or move the key to another ConfigMap"
}

// Unwritten says why the body from url, of that size if it is known, is not written to a key, for a
// class that the writer reports.
func Unwritten(class v1.FailureClass, url, key string, size int) string {
	switch class {
	case failure.KeyExists:
		return KeyExists(key)
	case failure.Immutable:
		return "the ConfigMap is immutable, so key " + key +
			" cannot be written; delete it and create it again without immutable: true"
	case failure.BodyTooLarge:
		shown := ""
		if size > 0 {
			shown = " (" + bytes(int64(size)) + ")"
		}
		return "the ConfigMap would exceed 1 MiB with the body for key " + key + shown + "; move the key to another ConfigMap"
	case failure.WriteFailed:
		return "the API server refused to write the body from " + Host(url) +
			", perhaps by an admission policy or webhook; ask the operator, the log of the writer says which"
	default:
		return Failure(&v1.Want{Url: url}, &v1.Failure{Class: class})
	}
}

// Value says what a key holds while it fails.
func Value(key string, written bool) string {
	if written {
		return "key " + key + " keeps its last good value"
	}
	return "key " + key + " has no value yet"
}
