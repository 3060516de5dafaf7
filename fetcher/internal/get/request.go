package get

import (
	"time"

	"github.com/kv8s/curl-me-that/fetcher/internal/egress"
)

// Request asks for one GET.
type Request struct {
	// URL is absolute, scheme included.
	URL string
	// Namespace of the ConfigMap, which decides the policy and the credentials.
	Namespace string
	// ETag and LastModified of the body that is held already make the request
	// conditional (RFC 9110 section 13); empty: not conditional.
	ETag, LastModified string
	// Untrusted reports that others than the watcher may have asked for it. A hop that
	// would carry credentials then fails in place of it.
	Untrusted bool

	// policy and entries take the place of Namespace in a resolved request. Hops look
	// nothing else up, so a reload under way cannot add credentials.
	policy  *egress.Policy
	entries hostEntries
}

// MayCarry reports whether a hop of a resolved request may carry credentials, if only
// by another scheme, at another port or path of the host.
func (r Request) MayCarry() bool { return r.entries != (hostEntries{}) }

func (r Request) conditional() bool { return r.ETag != "" || r.LastModified != "" }

// Response is a good answer: a 200, or a 304 to a conditional request.
type Response struct {
	// NotModified: the answer is a 304, without a body.
	NotModified bool
	// Body as received, which may be empty.
	Body []byte
	// SHA256 of Body, 64 lower-case hexadecimal digits.
	SHA256 string
	// ETag of the body (RFC 9110 section 8.8.3); empty if absent or malformed. That of
	// the request, where a 304 has no other.
	ETag string
	// LastModified of the body (RFC 9110 section 8.8.2); likewise.
	LastModified string
	// MaxAge is for how long the answer stays fresh (RFC 9111 section 4.2);
	// zero if the server sends nothing of it.
	MaxAge time.Duration
}
