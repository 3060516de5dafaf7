package promise

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/kv8s/curl-me-that/proto/status"
)

// Promises about the final state.
const (
	// Heals: a key is repaired within the audit interval once its cause is gone.
	Heals = "L4"
	// Apart: no object, namespace or host stops or starves another.
	Apart = "T1"
)

// Right returns a sentence for each key that does not hold the body of its annotation,
// and for each of our keys without an annotation. The caller names the promise. A
// suspended object and an invalid annotation request nothing.
func (c Checker) Right(promise string, object *corev1.ConfigMap) []string {
	request, err := c.Grammar.Parse(object.Annotations)
	if err != nil || request.Suspended {
		return nil
	}
	var wrong []string
	held, entries := values(object), statusOf(object).Keys
	keys := union(entries, nil)
	for _, pair := range request.Pairs {
		keys[pair.Key] = struct{}{}
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		url, asked := request.URL(key)
		if !asked && request.Names(key) { // in a pair that is refused
			continue
		}
		if what := c.wrong(url, asked, request.Rules[key].Select, held[key], entries[key]); what != "" {
			wrong = append(wrong, fmt.Sprintf("%s: ConfigMap %s/%s: key %s %s", promise, object.Namespace, object.Name, key,
				what))
		}
	}
	return wrong
}

// wrong describes the problem of a key, if any.
func (c Checker) wrong(url string, asked bool, selected string, held *value, entry status.Entry) string {
	switch {
	case !asked && held != nil && entry.Written() && entry.SHA256 == digestOf(held.body):
		return "exists and is no longer requested"
	case !asked:
		return ""
	case entry.Failing():
		return "reports " + entry.Error
	case held == nil:
		return "is not there"
	case entry.URL != url:
		return "has the body of another URL"
	case entry.SHA256 != digestOf(held.body):
		return "differs from the digest in its status"
	case selected == "" && !c.Served(url, []byte(held.body)):
		return "has a body that its URL never served"
	}
	return ""
}

func digestOf(body string) string {
	sum := sha256.Sum256([]byte(body))
	return hex.EncodeToString(sum[:])
}
