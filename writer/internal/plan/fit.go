package plan

import (
	"maps"

	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/status"
)

// fit returns the text of s in at most room bytes, if possible. It drops validators first, then
// sizes and explanations, then entries of foreign keys without a value. URL, digest, fence and the
// problem of the annotations stay. short reports whether anything was dropped.
func fit(s status.Status, room int) (text string, short bool) {
	text = s.String()
	for _, slim := range []func(*status.Entry){
		func(e *status.Entry) { e.ETag, e.LastModified = "", "" },
		func(e *status.Entry) { e.Size, e.Attempts, e.Explanation = 0, 0, nil },
	} {
		if len(text) <= room {
			break
		}
		for key, entry := range s.Keys {
			slim(&entry)
			s.Keys[key] = entry
		}
		text, short = s.String(), true
	}
	if len(text) <= room {
		return text, short
	}
	maps.DeleteFunc(s.Keys,
		func(_ string, e status.Entry) bool { return e.Error == pipeline.Reason(keyExists) && !e.Written() })
	return s.String(), true
}
