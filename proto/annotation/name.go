package annotation

import (
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// OptionNames returns the names of the options, each used with the prefix of an accepted annotation
// key. The chart's admission policy lists them, too.
func OptionNames() []string {
	return []string{RefreshName, NowName, SuspendName, SHA256Name, ExpectName, SelectName, AllowHTMLName}
}

// Concerns reports whether an object has any annotation of ours, or an annotation or a label whose
// name looks like a typo of one.
func (g *Grammar) Concerns(o metav1.Object) bool {
	var mistakes Request
	_, _, found := g.Find(o.GetAnnotations())
	if !found {
		g.unknownNames(o.GetAnnotations(), &mistakes)
		g.mislabeled(o.GetLabels(), &mistakes)
	}
	return found || len(mistakes.Problems) > 0
}

// unknown reports whether an annotation is not ours but has a similar name: an accepted prefix and
// curl-…, or a prefix and a name that are nearly right.
func (g *Grammar) unknown(annotation string) bool {
	prefix, name := cutPrefix(annotation)
	switch {
	case annotation == StatusKey, NameInStatus(annotation) == "", slices.Contains(g.keys, annotation):
		return false
	case !slices.Contains(g.prefixes, prefix):
		return (prefix == "" || nearest(prefix, g.prefixes, maxPrefixTypos) != "") && g.nearest(name) != ""
	case slices.Contains(g.options, name):
		return false
	}
	return strings.HasPrefix(name, "curl-") || g.nearest(name) != ""
}

// maxNames is the maximum number of annotations, and of labels, among which typos are looked for, because that takes
// microseconds for each.
const maxNames = 1024

// unknownNames adds a problem for each unknown annotation.
func (g *Grammar) unknownNames(annotations map[string]string, request *Request) {
	if len(annotations) > maxNames {
		return
	}
	for _, annotation := range slices.Sorted(maps.Keys(annotations)) {
		if !g.unknown(annotation) {
			continue
		}
		text := "annotation " + annotation + " is unknown and has no effect; "
		prefix, name := cutPrefix(annotation)
		meant := g.nearest(name)
		if meant != "" && !slices.Contains(g.prefixes, prefix) {
			meant = g.prefixes[0] + "/" + meant
		}
		if meant != "" {
			text += "did you mean " + meant + "?"
		} else {
			text += "use one of " + strings.Join(g.names, ", ")
		}
		request.add(Problem{Mistake: text, Text: text})
	}
}

// mislabeled adds a problem for each label with the name of an annotation.
func (g *Grammar) mislabeled(labels map[string]string, request *Request) {
	if len(labels) > maxNames {
		return
	}
	for _, label := range slices.Sorted(maps.Keys(labels)) {
		prefix, name := cutPrefix(label)
		if slices.Contains(g.prefixes, prefix) && g.nearest(name) != "" {
			text := "label " + label + " has no effect; did you mean the annotation " + g.nearest(name) + "?"
			request.add(Problem{Mistake: text, Text: text})
		}
	}
}

// cutPrefix splits the name of an annotation or label.
func cutPrefix(full string) (prefix, name string) {
	slash := strings.LastIndexByte(full, '/')
	return full[:max(slash, 0)], full[slash+1:]
}

// maxNameTypos and maxPrefixTypos are the maximum number of wrong characters in a name and in a
// prefix that are still recognized. The prefix may lack its .io.
const maxNameTypos, maxPrefixTypos = 2, 3

// nearest returns the known name that is most similar to another one, or "" if none is.
func (g *Grammar) nearest(name string) string { return nearest(name, g.names, maxNameTypos) }

func nearest(wrong string, known []string, typos int) (found string) {
	best := typos + 1
	for _, name := range known {
		if d := len(wrong) - len(name); d > typos || d < -typos {
			continue
		}
		if d := distance(strings.ToLower(wrong), name); d < best {
			best, found = d, name
		}
	}
	return found
}

// distance returns the Levenshtein distance between two words.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}

// ignored adds a problem for each other spelling of the annotation in effect, if its value differs. The
// same value does no harm.
func (g *Grammar) ignored(annotations map[string]string, value string, request *Request) {
	for _, key := range g.keys {
		if other, found := annotations[key]; found && other != value {
			text := "annotation " + key + " is ignored, because " + request.Annotation +
				" takes precedence; remove one of them"
			request.add(Problem{Mistake: text, Text: text})
		}
	}
}
