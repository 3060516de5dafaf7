package annotation

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
)

// MaxRefresh is the maximum refresh interval; longer ones are lowered to it.
const MaxRefresh = 365 * 24 * time.Hour

// Options configure a Grammar.
type Options struct {
	// Keys are the accepted annotation keys, each of the form prefix/name, in order of precedence.
	Keys []string
	// DefaultScheme is assumed for a URL without one: http or https.
	DefaultScheme string
	// MinRefresh is the minimum refresh interval, between 0 and MaxRefresh; shorter ones are raised
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

// New returns the grammar described by o, or an error that wraps ErrConfig.
func New(o Options) (*Grammar, error) {
	if len(o.Keys) == 0 {
		return nil, fmt.Errorf("%w: name at least one annotation key, such as %s", ErrConfig, DefaultKey)
	}
	if o.DefaultScheme != "http" && o.DefaultScheme != "https" {
		return nil, fmt.Errorf("%w: default scheme %q must be http or https", ErrConfig, o.DefaultScheme)
	}
	if o.MinRefresh < 0 || o.MinRefresh > MaxRefresh {
		return nil, fmt.Errorf("%w: minimum refresh %v must be between 0 and %v", ErrConfig, o.MinRefresh, MaxRefresh)
	}
	g := &Grammar{
		keys: slices.Clone(o.Keys), options: OptionNames(), defaultScheme: o.DefaultScheme, minRefresh: o.MinRefresh,
	}
	for i, key := range o.Keys {
		if err := checkKey(key); err != nil {
			return nil, err
		}
		if slices.Contains(o.Keys[:i], key) {
			return nil, fmt.Errorf("%w: annotation key %q appears twice", ErrConfig, key)
		}
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

// option returns the annotation with that name under the first prefix that has it.
func (g *Grammar) option(annotations map[string]string, name string) (key, value string) {
	for _, prefix := range g.prefixes {
		key := prefix + "/" + name
		if value, found := annotations[key]; found {
			return key, value
		}
	}
	return "", ""
}

// checkKey rejects an annotation key that the API server would not store, that has no prefix, or
// that is the name of an option.
func checkKey(key string) error {
	if problems := validation.IsQualifiedName(strings.ToLower(key)); len(problems) > 0 {
		return fmt.Errorf("%w: annotation key %q: %s", ErrConfig, key, problems[0])
	}
	_, name, prefixed := strings.Cut(key, "/")
	if !prefixed {
		return fmt.Errorf("%w: annotation key %q has no prefix; write prefix/name", ErrConfig, key)
	}
	if slices.Contains(OptionNames(), name) || name == shortName(StatusKey) {
		return fmt.Errorf("%w: annotation key %q is the name of an option", ErrConfig, key)
	}
	return nil
}
