package get

import (
	"net/netip"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/sentence"
)

// MaxSnippet is the maximum size of Error.Snippet, in bytes.
const MaxSnippet = 1 << 10

// Error means that a GET failed. Its text is one sentence without any address, text of a server,
// query or credentials.
type Error struct {
	Class  v1.FailureClass
	Detail v1.FailureDetail
	// Further details of a denial: the other rules that deny the URL.
	Further []v1.FailureDetail
	// Limit that a body exceeded, in bytes (zero for other failures).
	Limit int64
	// TimeLimit that was exceeded (zero for other failures, or if it is unknown).
	TimeLimit time.Duration
	// SHA256 of a body that is not the required one.
	SHA256 string
	// Redirects that were followed before.
	Redirects int
	// StatusCode of the response (zero without one).
	StatusCode int
	// RetryAfter is the wait that the server requested, not clamped. Zero if none.
	RetryAfter time.Duration
	// Redirected reports whether the response came from another origin than the requested URL's.
	Redirected bool
	// Snippet is the start of the body of a response with a bad status, or of one that fails the rules, at most
	// MaxSnippet bytes.
	// It is for dead letters only, never for Events or logs.
	Snippet []byte
	// Credential is the source of a credential that a server rejected or that is missing: an entry, a
	// Secret, or the host of a token URL. It is never a credential.
	Credential string
	// Settings identifies the settings that may end the failure, see Client.SettingsChanged (empty: none).
	Settings string
	// Host of the requested URL, in lower case; never the host of a redirect.
	Host string

	cause error
}

// Failure returns the failure as it is published.
func (e *Error) Failure() *v1.Failure {
	f := &v1.Failure{
		Class: e.Class, Detail: e.Detail, Further: e.Further, StatusCode: int32(e.StatusCode),
		LimitBytes: e.Limit, Redirects: uint32(e.Redirects), Sha256: e.SHA256, Credential: e.Credential,
	}
	if e.TimeLimit > 0 {
		f.TimeLimit = durationpb.New(e.TimeLimit)
	}
	return f
}

// Error describes the failure.
func (e *Error) Error() string {
	host := e.Host
	if _, err := netip.ParseAddr(host); err == nil {
		host = pipeline.HiddenHost
	} else if host == "" {
		host = "the host of the URL"
	}
	return sentence.OfHost(host, e.Failure())
}

// Unwrap returns the cause, only for errors.Is and debugging, because its text may contain
// addresses and text of the server.
func (e *Error) Unwrap() error { return e.cause }
