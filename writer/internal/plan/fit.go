package plan

import (
	"maps"

	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/status"
)

// fit returns the text of s in at most room bytes, if that is possible. What
// only saves work goes first: the validators of conditional requests, then the
// sizes and times that only people read, then the entries of keys that somebody else has
// written, which hold nothing. Without URL, digest and fence the status would be
// worthless, so they stay, and so does what is wrong with the annotations, which is
// bounded. It reports short when not all of s is in the text.
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
	maps.DeleteFunc(s.Keys, func(_ string, e status.Entry) bool { return e.Error == pipeline.Reason(keyExists) && !e.Written() })
	return s.String(), true
}
