// Package annotation parses the annotations that users write on a ConfigMap, and reads from
// managedFields who owns its keys.
//
// The watcher parses annotations to learn which URLs are wanted. The writer parses them again
// before it writes. Both must get the same result, so there is one grammar, and it returns
// canonical URLs.
//
// The grammar does not decide where a URL may lead. The fetcher checks host, address and port when
// it opens the connection.
package annotation

const (
	// DefaultKey is the annotation that asks for data: pairs of key=url.
	DefaultKey = "x-kv8s.io/curl-me-that"
	// LegacyKey is an older spelling of DefaultKey that some manifests still use.
	LegacyKey = "x-k8s.io/curl-me-that"
	// StatusKey is the annotation with the status that the writer reports (package status).
	StatusKey = "x-kv8s.io/curl-status"
	// FieldManager is the writer's field manager. A key is ours if managedFields lists it under
	// this name.
	FieldManager = "curl-me-that"
	// AncientManager is the manager to which the API server moves the oldest fields of an object that
	// more than ten managers have updated.
	AncientManager = "ancient-changes"
	// Selector is the label selector that excludes objects labelled reconciler=ignore. The API
	// server applies it.
	Selector = IgnoreLabel + "!=" + IgnoreValue
)

// Names of the options. Each is looked up under the prefix of every accepted annotation key, in order
// of precedence.
const (
	// RefreshName holds the refresh interval, a duration such as 10m or 1d12h, and pairs of
	// key=interval for keys with their own.
	RefreshName = "curl-refresh"
	// NowName holds any value. A change triggers a fetch.
	NowName = "curl-now"
	// SuspendName excludes the object while it is true.
	SuspendName = "curl-suspend"
	// AllowHTMLName lets a key become an HTML page while it is true. Else the writer takes a page for a login or an error
	// page if the key holds something else.
	AllowHTMLName = "curl-allow-html"
	// SHA256Name holds pairs of key=digest that bodies must match.
	SHA256Name = "curl-sha256"
	// ExpectName holds lines of key=rule, expressions that must be true for a body.
	ExpectName = "curl-expect"
	// SelectName holds lines of key=expression, which give the value of a key.
	SelectName = "curl-select"
)

// Limits on everything a tenant writes. They keep the annotations, their copy in
// last-applied-configuration and the status together below the 262,144 bytes that the API server
// allows for all annotations of an object.
const (
	// MaxPairs is the maximum number of pairs in one annotation.
	MaxPairs = 128
	// MaxValueBytes is the maximum length of one annotation.
	MaxValueBytes = 32 << 10
	// MaxNowBytes is the maximum length of a curl-now value that is passed on as written. A longer
	// one is replaced by its digest.
	MaxNowBytes = 128
)
