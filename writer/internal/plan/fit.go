package plan

import (
	"maps"

	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/status"
)

// fit returns the text of s in at most room bytes, if possible. It drops sizes and explanations
// first, then entries of foreign keys without a value. URL, digest, fence and the problem of the
// annotations stay. short reports whether anything was dropped.
func fit(s status.Status, room int) (text string, short bool) {
	if text = s.String(); len(text) <= room {
		return text, false
	}
	for key, entry := range s.Keys {
		entry.Size, entry.Attempts, entry.Explanation = 0, 0, nil
		s.Keys[key] = entry
	}
	if text = s.String(); len(text) <= room {
		return text, true
	}
	maps.DeleteFunc(s.Keys,
		func(_ string, e status.Entry) bool { return e.Error == pipeline.Reason(keyExists) && !e.Written() })
	return s.String(), true
}
