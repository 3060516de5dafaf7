package plan

import (
	"bytes"
	"regexp"
)

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
// error, unless the annotations allow it. A page that the key had before, or that its digest requires, is meant.
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
