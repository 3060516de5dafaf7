package get

import (
	"github.com/kv8s/curl-me-that/fetcher/internal/egress"
)

// Request describes one GET.
type Request struct {
	// URL is absolute, including the scheme.
	URL string
	// Namespace of the ConfigMap, which determines the policy and the credentials.
	Namespace string
	// Validators of the current body make the request conditional, if it reaches their URL.
	Validators
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

// Response is a successful response: a 200, or a 304 to a conditional request.
type Response struct {
	// NotModified: the response is a 304, without a body.
	NotModified bool
	// Body as received; may be empty.
	Body []byte
	// SHA256 of Body, 64 lower-case hexadecimal digits.
	SHA256 string
	// Credential: a request on the way to the body was sent with a credential.
	Credential bool
	// Validators of the body. A 304 does not change them.
	Validators
}
