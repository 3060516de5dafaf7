package get

import (
	"time"

	"github.com/kv8s/curl-me-that/fetcher/internal/egress"
)

// Request describes one GET.
type Request struct {
	// URL is absolute, including the scheme.
	URL string
	// Namespace of the ConfigMap, which determines the policy and the credentials.
	Namespace string
	// ETag and LastModified of the current body make the request conditional (RFC 9110 section 13);
	// empty means not conditional.
	ETag, LastModified string
	// Untrusted reports that the request may not come from the watcher. A hop that would carry
	// credentials then fails instead.
	Untrusted bool

	// policy and grants replace Namespace in a resolved request. Hops use only these, so a
	// concurrent reload cannot add credentials.
	policy *egress.Policy
	grants grants
}

// MayCarry reports whether a hop of a resolved request may carry credentials, possibly with another
// scheme, port or path of the host.
func (r Request) MayCarry() bool { return r.grants != (grants{}) }

func (r Request) conditional() bool { return r.ETag != "" || r.LastModified != "" }

// Response is a successful response: a 200, or a 304 to a conditional request.
type Response struct {
	// NotModified: the response is a 304, without a body.
	NotModified bool
	// Body as received; may be empty.
	Body []byte
	// SHA256 of Body, 64 lower-case hexadecimal digits.
	SHA256 string
	// ETag of the body (RFC 9110 section 8.8.3), empty if absent or malformed. That of the request
	// if a 304 has none.
	ETag string
	// LastModified of the body (RFC 9110 section 8.8.2), with the same rules.
	LastModified string
	// MaxAge is how long the response stays fresh (RFC 9111 section 4.2). Zero if unknown.
	MaxAge time.Duration
}
