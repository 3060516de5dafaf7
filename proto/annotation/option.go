package annotation

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/kv8s/curl-me-that/proto/annotation/duration"
)

// suspended parses curl-suspend. Empty means absent, here and in the other options, because
// templates produce empty values.
func (g *Grammar) suspended(annotations map[string]string) (bool, error) {
	key, value := g.option(annotations, SuspendName)
	trimmed := strings.TrimSpace(value)
	if trimmed == "" {
		return false, nil
	}
	suspended, err := strconv.ParseBool(trimmed)
	if err != nil {
		return false, invalidOption(key, SuspendName, value, "is not true or false", "not a boolean")
	}
	return suspended, nil
}

// refresh parses curl-refresh and limits it to the allowed range, with a problem if that changes
// it. Zero means absent.
func (g *Grammar) refresh(annotations map[string]string) (time.Duration, []Problem, error) {
	key, value := g.option(annotations, RefreshName)
	trimmed := strings.TrimSpace(value)
	if trimmed == "" {
		return 0, nil, nil
	}
	interval, err := duration.Parse(trimmed)
	if err != nil || interval < 0 {
		return 0, nil, invalidOption(key, RefreshName, value, "is not a duration such as 10m", "not a positive Go duration")
	}
	if interval == 0 {
		return 0, nil, nil
	}
	allowed := min(max(interval, g.minRefresh), MaxRefresh)
	if allowed == interval {
		return allowed, nil, nil
	}
	limit, used := "below the minimum of ", duration.Format(allowed)
	if allowed < interval {
		limit = "above the maximum of "
	}
	text := RefreshName + " is " + quotable(trimmed) + ", " + limit + used + "; " + used + " is used"
	return allowed, []Problem{{Rule: text, Text: text, Adjusted: true, Followed: true}}, nil
}

// now reads curl-now. A value that is too long or not valid UTF-8 is replaced by its digest.
func (g *Grammar) now(annotations map[string]string) string {
	_, value := g.option(annotations, NowName)
	if len(value) <= MaxNowBytes && utf8.ValidString(value) {
		return value
	}
	digest := sha256.Sum256([]byte(value))
	return "sha256:" + hex.EncodeToString(digest[:])
}

// digests parses curl-sha256. A digest for a key that is not requested is rejected, because its
// author relies on a check that would never happen.
func (g *Grammar) digests(annotations map[string]string, request Request) (map[string]string, error) {
	annotation, value := g.option(annotations, SHA256Name)
	if strings.TrimSpace(value) == "" {
		return nil, nil
	}
	digests := make(map[string]string)
	cause := eachPair(value, func(key, digest string) string {
		digests[key] = strings.ToLower(digest)
		if raw, err := hex.DecodeString(digest); err != nil || len(raw) != sha256.Size {
			return "the digest is not 64 hexadecimal digits"
		}
		return ""
	})
	if cause != "" {
		return nil, invalidOption(annotation, SHA256Name, value,
			"does not match expected format key=<64 hexadecimal digits>", cause)
	}
	for key := range digests {
		if !request.Names(key) {
			return nil, invalidOption(annotation, SHA256Name, value,
				"has a digest for key "+key+", which is not requested", "key "+key+" is not requested")
		}
	}
	return digests, nil
}
