package annotation

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
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

// Asker returns the name that a status entry has for an annotation key: the same, or empty for both
// spellings of the default.
func Asker(key string) string {
	if key == DefaultKey || key == LegacyKey {
		return ""
	}
	return key
}

// Accepts reports whether an accepted annotation key has this name in a status.
func (g *Grammar) Accepts(asker string) bool {
	return slices.ContainsFunc(g.keys, func(key string) bool { return Asker(key) == asker })
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

// values returns the values of the options, each under the first prefix that has it.
func (g *Grammar) values(annotations map[string]string) map[string]string {
	values := map[string]string{}
	for _, prefix := range slices.Backward(g.prefixes) {
		for _, name := range g.options {
			if value, found := annotations[prefix+"/"+name]; found {
				values[name] = value
			}
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
