package plan

import (
	"crypto/sha256"
	"iter"
	"slices"
)

// Section is a part of a ConfigMap with named fields.
type Section byte

// The sections.
const (
	Data        Section = 'd'
	BinaryData  Section = 'b'
	Labels      Section = 'l'
	Annotations Section = 'a'
	Owners      Section = 'o'
)

// Fields is a set of fields of a ConfigMap. Sets are compared by their digests.
type Fields struct{ names []string }

// Add adds fields of one section.
func (f *Fields) Add(section Section, names iter.Seq[string]) {
	for name := range names {
		f.names = append(f.names, string(section)+"/"+name+"\n")
	}
}

// Digest returns the digest of the set.
func (f *Fields) Digest() Digest {
	slices.Sort(f.names)
	sum := sha256.New()
	for _, name := range f.names {
		sum.Write([]byte(name))
	}
	return Digest(sum.Sum(nil)[:len(Digest{})])
}
