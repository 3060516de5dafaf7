package get

import (
	"fmt"
	"net/netip"
	"time"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// MaxSnippet is the largest size in bytes of Error.Snippet.
const MaxSnippet = 1 << 10

// Error is a GET that failed. Its text is one sentence in our words; it has no
// address, no text of a server, no query and no credentials.
type Error struct {
	// Class of the failure.
	Class v1.FailureClass
	// Detail is what more is known of it.
	Detail v1.FailureDetail
	// Limit in bytes that a body exceeded; zero for other failures.
	Limit int64
	// Redirects that had been followed.
	Redirects int
	// StatusCode of the answer; zero if there was none.
	StatusCode int
	// RetryAfter is what the server asks to wait; zero if it does not. It is
	// not clamped.
	RetryAfter time.Duration
	// Redirected reports whether the answer came from another origin than that
	// of the requested URL.
	Redirected bool
	// Snippet is the start of the body of an answer with a bad status, at most
	// MaxSnippet bytes; for dead letters only, never for Events or logs.
	Snippet []byte
	// Host of the requested URL, in lower case; never that of a redirect.
	Host string

	phrase string
	cause  error
}

// Error describes what failed.
func (e *Error) Error() string {
	host := e.Host
	if _, err := netip.ParseAddr(host); err == nil {
		host = pipeline.HiddenHost
	} else if host == "" {
		host = "the host of the URL"
	}
	return fmt.Sprintf("GET from %s %s", host, e.phrase)
}

// Unwrap returns the cause, for errors.Is and debugging only: its text may
// hold addresses and what the server sent.
func (e *Error) Unwrap() error { return e.cause }
