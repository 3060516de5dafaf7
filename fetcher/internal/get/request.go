package get

import "time"

// Request asks for one GET.
type Request struct {
	// URL is absolute, scheme included.
	URL string
	// Namespace of the ConfigMap, which decides the policy and the credentials.
	Namespace string
	// ETag and LastModified of the body that is held already make the request
	// conditional (RFC 9110 section 13); empty: not conditional.
	ETag, LastModified string
	// MaxBody in bytes lowers the limit of the configuration; 0: that one.
	MaxBody int64
	// Untrusted reports that others than the watcher may have asked for it. A hop that
	// would carry credentials then fails in place of it.
	Untrusted bool
}

func (r Request) conditional() bool { return r.ETag != "" || r.LastModified != "" }

// Status is the kind of a good answer.
type Status int

// Kinds of good answers.
const (
	// Content: a 200 with a body, which may be empty.
	Content Status = iota + 1
	// NotModified: a 304 to a conditional request.
	NotModified
)

// Response is a good answer.
type Response struct {
	// Status is Content or NotModified.
	Status Status
	// Body as received; nil unless Status is Content.
	Body []byte
	// SHA256 of Body, 64 lower-case hexadecimal digits.
	SHA256 string
	// ETag of the answer (RFC 9110 section 8.8.3); empty if absent or malformed.
	ETag string
	// LastModified of the answer (RFC 9110 section 8.8.2); likewise.
	LastModified string
	// MaxAge is for how long the answer stays fresh (RFC 9111 section 4.2);
	// zero if the server sends nothing of it.
	MaxAge time.Duration
}
