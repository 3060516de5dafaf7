// Package annotation is the grammar of what a user writes on a ConfigMap, and
// the reading of the owners of its keys.
//
// The watcher parses annotations to learn what is wanted, the writer parses
// them again before it touches an object. Both must come to the same answer,
// which is why there is one grammar and why it yields canonical URLs.
//
// The grammar knows nothing of where a URL may lead: whether a host, an address
// or a port may be visited is decided where the connection is opened, by the
// fetcher.
package annotation

const (
	// DefaultKey is the annotation that asks for data: pairs of key=url.
	DefaultKey = "x-kv8s.io/curl-me-that"
	// LegacyKey is an older spelling of DefaultKey, which manifests in the
	// field carry.
	LegacyKey = "x-k8s.io/curl-me-that"
	// StatusKey is the annotation in which the writer reports (package status).
	StatusKey = "x-kv8s.io/curl-status"
	// FieldManager is the name under which the writer patches, and by which a
	// key is recognised as ours in managedFields.
	FieldManager = "curl-me-that"
	// Selector is the label selector that leaves out objects labelled
	// reconciler=ignore. The API server applies it.
	Selector = IgnoreLabel + "!=" + IgnoreValue
)

// Names of the options. Each is looked up under the prefix of every accepted
// annotation key, in order of precedence.
const (
	// RefreshName holds the interval of regular fetches, a duration such as 10m or
	// 1d12h.
	RefreshName = "curl-refresh"
	// NowName holds a value whose change means: fetch now.
	NowName = "curl-now"
	// SuspendName, when true, means: leave this object alone.
	SuspendName = "curl-suspend"
	// SHA256Name holds pairs of key=digest that bodies must have.
	SHA256Name = "curl-sha256"
)

// Limits, so that nothing a tenant writes is unbounded. With them the request,
// its copy in last-applied-configuration and the status together stay below the
// 262,144 bytes that the API server allows for all annotations of an object.
const (
	// MaxPairs is the number of pairs in one annotation.
	MaxPairs = 128
	// MaxValueBytes is the length of one annotation.
	MaxValueBytes = 32 << 10
	// MaxNowBytes is the longest value of curl-now that is handed on as
	// written; a longer one is replaced by its digest.
	MaxNowBytes = 128
)
