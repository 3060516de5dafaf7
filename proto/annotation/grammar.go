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

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
)

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

// MaxRefresh is the maximum refresh interval. Longer ones are lowered to it.
const MaxRefresh = 365 * 24 * time.Hour

// Options configure a Grammar.
type Options struct {
	// Keys are the accepted annotation keys, each of the form prefix/name, in order of precedence.
	Keys []string
	// DefaultScheme is assumed for a URL without one: http or https.
	DefaultScheme string
	// MinRefresh is the minimum refresh interval, between 0 and MaxRefresh. Shorter ones are raised
	// to it.
	MinRefresh time.Duration
}

// Defaults returns the default options of the services.
func Defaults() Options {
	return Options{
		Keys:          []string{DefaultKey, LegacyKey},
		DefaultScheme: "https",
		MinRefresh:    10 * time.Second,
	}
}

// Grammar parses annotations. It is immutable and safe for concurrent use.
type Grammar struct {
	keys          []string
	prefixes      []string
	options       []string
	names         []string // of keys and options, without prefixes
	defaultScheme string
	minRefresh    time.Duration
}

// check returns the first mistake in the options, as a sentence with its flag.
func (o Options) check() error {
	switch {
	case len(o.Keys) == 0:
		return errors.New("--annotation-keys: name at least one, such as " + DefaultKey)
	case o.DefaultScheme != "http" && o.DefaultScheme != "https":
		return fmt.Errorf("--default-scheme: %q is neither http nor https", o.DefaultScheme)
	case o.MinRefresh < 0 || o.MinRefresh > MaxRefresh:
		return fmt.Errorf("--min-refresh: %v is not between 0 and %v", o.MinRefresh, MaxRefresh)
	}
	for i, key := range o.Keys {
		if err := checkKey(key); err != nil {
			return err
		}
		if slices.Contains(o.Keys[:i], key) {
			return fmt.Errorf("--annotation-keys: %q appears twice", key)
		}
	}
	return nil
}

// New returns the grammar described by o.
func New(o Options) (*Grammar, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	g := &Grammar{
		keys: slices.Clone(o.Keys), options: OptionNames(), defaultScheme: o.DefaultScheme, minRefresh: o.MinRefresh,
	}
	for _, key := range o.Keys {
		prefix, name, _ := strings.Cut(key, "/")
		if !slices.Contains(g.prefixes, prefix) {
			g.prefixes = append(g.prefixes, prefix)
		}
		if !slices.Contains(g.names, name) {
			g.names = append(g.names, name)
		}
	}
	g.names = append(g.names, g.options...)
	return g, nil
}

// Keys returns the accepted annotation keys, in order of precedence.
func (g *Grammar) Keys() []string { return slices.Clone(g.keys) }

// NameInStatus returns the name that a status entry has for an annotation key: the same, or empty for both
// spellings of the default.
func NameInStatus(key string) string {
	if key == DefaultKey || key == LegacyKey {
		return ""
	}
	return key
}

// Accepts reports whether an accepted annotation key has this name in a status.
func (g *Grammar) Accepts(asker string) bool {
	return slices.ContainsFunc(g.keys, func(key string) bool { return NameInStatus(key) == asker })
}

// Find returns the annotation that asks for data, and its value. If several accepted spellings are
// present, only the first in order of precedence counts.
func (g *Grammar) Find(annotations map[string]string) (key, value string, found bool) {
	for _, key := range g.keys {
		if value, found := annotations[key]; found {
			return key, value, true
		}
	}
	return "", "", false
}

// FindOption returns the annotation with the value of an option: the one under the first prefix that has it. If there
// is none, it returns the annotation under the first prefix.
func (g *Grammar) FindOption(annotations map[string]string, name string) (key, value string, found bool) {
	for _, prefix := range g.prefixes {
		key = prefix + "/" + name
		if value, found = annotations[key]; found {
			return key, value, true
		}
	}
	return g.prefixes[0] + "/" + name, "", false
}

// values returns the values of the options.
func (g *Grammar) values(annotations map[string]string) map[string]string {
	values := map[string]string{}
	for _, name := range g.options {
		if _, value, found := g.FindOption(annotations, name); found {
			values[name] = value
		}
	}
	return values
}

// checkKey rejects an annotation key that the API server would reject, that has no prefix, or whose
// name is that of an option.
func checkKey(key string) error {
	if problems := validation.IsQualifiedName(strings.ToLower(key)); len(problems) > 0 {
		return fmt.Errorf("--annotation-keys: %q: %s", key, problems[0])
	}
	_, name, prefixed := strings.Cut(key, "/")
	if !prefixed {
		return fmt.Errorf("--annotation-keys: %q has no prefix; write prefix/name", key)
	}
	if slices.Contains(OptionNames(), name) || name == shortName(StatusKey) {
		return fmt.Errorf("--annotation-keys: %q is the name of an option", key)
	}
	return nil
}

const (
	// RootCA is a ConfigMap that exists in every namespace and that every pod trusts. It is always
	// ignored.
	RootCA = "kube-root-ca.crt"
	// IgnoreLabel with the value IgnoreValue excludes an object, as Selector does.
	IgnoreLabel = "reconciler"
	// IgnoreValue is the value of IgnoreLabel.
	IgnoreValue = "ignore"
)

// DefaultProtected returns the namespaces in which the control plane keeps its own ConfigMaps.
func DefaultProtected() []string { return []string{"kube-system", "kube-public", "kube-node-lease"} }

// Protects reports whether a ConfigMap is always ignored: it is in a protected namespace, or is the
// RootCA.
func Protects(protected []string, namespace, name string) bool {
	return name == RootCA || slices.Contains(protected, namespace)
}
