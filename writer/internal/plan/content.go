package plan

import (
	"bytes"
	"cmp"
	"regexp"
	"time"
	"unicode/utf8"

	"github.com/kv8s/curl-me-that/proto/annotation"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/failure"
	"github.com/kv8s/curl-me-that/proto/rule"
	"github.com/kv8s/curl-me-that/proto/status"
)

// content handles a body.
func (b *builder) content(i Item, c *v1.Content) Decision {
	key := i.Key.Key
	rules := rule.SetOf(i.Result.GetWant()).Hash()
	pin := b.object.Request.SHA256[key]
	offered := pin != "" && pin != c.GetSha256()
	switch {
	// Different rules mean that the fetcher does not know all of them, as during an upgrade.
	case !b.object.asks(i, ""), c.GetRules() != rules, offered && b.object.Request.Interval(key) <= 0:
		return Decision{Outcome: Late}
	case b.foreign(key):
		return b.recordObstacle(i, KeyExists, failure.KeyExists)
	case offered:
		return b.offered(i, c)
	}
	entry, owner := b.status.Keys[key], b.owner(key)
	holds := b.holds(key, c.GetSha256(), owner, entry)
	// checked stays empty if managedFields will name us as the owner: they exist, or a new key starts them.
	// Only the watcher knows whether the second of a fingerprint is over.
	checked := ""
	switch _, exists := b.object.Values[key]; {
	case owner.Fingerprint == annotation.FingerprintUnknown && exists:
		checked = annotation.FingerprintUnknown
	case holds && owner.Fingerprint == entry.CheckedFingerprint:
		checked = entry.CheckedFingerprint
	case holds && owner.State != annotation.Ours:
		checked = cmp.Or(i.Result.GetWant().GetFingerprint(), owner.Unsettled())
	}
	recorded := entry.CheckedFingerprint == checked || owner.State == annotation.Ours // an old fingerprint does no harm
	if holds && entry.SHA256 == c.GetSha256() && entry.URL == i.url() && entry.Rules == rules && recorded &&
		!entry.Failing() && entry.Available == "" {
		return Decision{Outcome: Unchanged, Confirmed: true}
	}
	if !holds && b.memory.Obstacle != "" {
		return b.recordRefusal(i)
	}
	body := c.GetBody()
	if !holds && owner.State != annotation.None && b.becomesHTML(i, body, c.GetSha256()) {
		return b.recordObstacle(i, Refused, failure.ContentRejected)
	}
	value := valueOf(body)
	if !holds {
		b.values[key] = value
	}
	next := status.Entry{
		URL: i.url(), SHA256: c.GetSha256(), Size: int64(len(body)), ChangedAt: i.observed(),
		Binary: value.Binary, CheckedFingerprint: checked, Fence: i.Fence, Rules: rules,
	}
	if entry.SHA256 == next.SHA256 && !entry.ChangedAt.IsZero() {
		next.ChangedAt = entry.ChangedAt
	}
	d := b.recordHealthy(i, entry, next)
	d.Keep = !holds
	return d
}

// valueOf returns the value of a body.
func valueOf(body []byte) *Value {
	return &Value{Body: body, Binary: !utf8.Valid(body) || jsonSize(body) > maxJSON}
}

// maxJSON is the maximum size of a text in data, in bytes of JSON. A request holds 3 MiB, and the status needs some of
// it. Text of 1 MiB has at most this size, unless it has many control characters, such as UTF-16 that is valid UTF-8.
// Others go to binaryData, whose base64 takes a third more than the body.
const maxJSON = 2 << 20

// jsonSize returns an upper bound of the size of a text as JSON (RFC 8259 section 7).
func jsonSize(text []byte) int {
	size := len(text)
	for _, c := range text {
		switch {
		case c == '"', c == '\\', c == '\n', c == '\r', c == '\t':
			size++
		case c < ' ':
			size += len(`\u0000`) - 1
		case c == 0xE2: // begins U+2028 and U+2029, which Go escapes
			size += len(`\u2028`) - len("\u2028")
		}
	}
	return size
}

// holds reports whether the key, which is not foreign, has the body with that digest.
func (b *builder) holds(key, digest string, owner annotation.Ownership, entry status.Entry) bool {
	switch owner.State {
	case annotation.Ours:
		return entry.SHA256 == digest
	case annotation.None:
		return false
	default:
		live, exists := b.digest(key)
		return exists && live == digest
	}
}

// foreign reports whether a key that we never wrote has a value of another field manager.
func (b *builder) foreign(key string) bool {
	owner, written := b.owner(key).State, b.status.Keys[key].HasBody()
	if written || owner != annotation.Unknown {
		return !written && owner == annotation.Foreign
	}
	_, exists := b.digest(key)
	return exists
}

// unmodified handles the recovery of a key that keeps its body.
func (b *builder) unmodified(i Item, u *v1.Unmodified) Decision {
	key := i.Key.Key
	entry := b.status.Keys[key]
	if !b.object.asks(i, u.GetSha256()) || entry.SHA256 != u.GetSha256() ||
		entry.Rules != rule.SetOf(i.Result.GetWant()).Hash() {
		return Decision{Outcome: Late}
	}
	if !entry.Failing() && entry.URL == i.url() {
		return Decision{Outcome: Unchanged, Confirmed: true}
	}
	next := entry.WithoutFailure()
	next.URL, next.Fence = i.url(), i.Fence
	return b.recordHealthy(i, entry, next)
}

// recordHealthy records a key without a failure.
func (b *builder) recordHealthy(i Item, was, next status.Entry) Decision {
	decision := Decision{Outcome: Written}
	next.Since = time.Time{}
	if was.Failing() {
		next.Since = i.observed() // tells eventsOf that the key recovered
		decision.Events = []Event{Recovered(i)}
	}
	b.set(i.Key.Key, next)
	return decision
}

// htmlBytes is the length of the part of a body in which a page begins. Comments may come first.
const htmlBytes = 64 << 10

// htmlStart matches the start of an HTML page: an element that only HTML has at the start, after byte order marks,
// spaces, comments and processing instructions.
var htmlStart = regexp.MustCompile(`(?is)^(\x{FEFF}|\s|<!--.*?-->|<\?.*?\?>)*` +
	`<(!doctype\s+html|html|head|title|meta|link|base|body|script|style|iframe|div|form|center|font|h[1-6])[\s/>]`)

// IsHTML reports whether a body is an HTML page, in UTF-8, UTF-16 or any encoding that contains ASCII.
func IsHTML(body []byte) bool {
	start := body[:min(len(body), htmlBytes)]
	if len(start) > 1 && (start[0] == 0xFF && start[1] == 0xFE || start[0] == 0xFE && start[1] == 0xFF) {
		start = bytes.ReplaceAll(start[2:], []byte{0}, nil)
	}
	return htmlStart.Match(start)
}

// becomesHTML reports whether a page would replace a value that is none. Such a page is probably a login page or an
// error, unless the annotations allow it. A page is accepted if the key had it before, or if curl-sha256 pins it.
func (b *builder) becomesHTML(i Item, body []byte, digest string) bool {
	key := i.Key.Key
	if b.object.Request.AllowHTML || digest == b.status.Keys[key].SHA256 || i.Result.GetWant().GetSha256() != "" ||
		!IsHTML(body) {
		return false
	}
	if pending := b.values[key]; pending != nil {
		return !IsHTML(pending.Body)
	}
	_, exists := b.digest(key)
	return exists && !b.object.Pages[key]
}
