package annotation

import (
	"maps"
	"slices"
	"strings"
)

// OptionNames returns the names of the options, each used with the prefix of an accepted annotation
// key. The chart's admission policy lists them, too.
func OptionNames() []string { return []string{RefreshName, NowName, SuspendName, SHA256Name} }

// Concerns reports whether any annotation is one of ours, or has a name that looks like a typo of
// one.
func (g *Grammar) Concerns(annotations map[string]string) bool {
	if _, _, found := g.Find(annotations); found {
		return true
	}
	for name := range annotations {
		if g.unknown(name) {
			return true
		}
	}
	return false
}

// unknown reports whether a name is PREFIX/curl-… under an accepted prefix, but none of ours.
func (g *Grammar) unknown(annotation string) bool {
	prefix, name, found := strings.Cut(annotation, "/")
	return found && strings.HasPrefix(name, "curl-") && annotation != StatusKey &&
		slices.Contains(g.prefixes, prefix) && !slices.Contains(OptionNames(), name) && !slices.Contains(g.keys, annotation)
}

// unknownNames returns a problem for each annotation that nothing reads.
func (g *Grammar) unknownNames(annotations map[string]string) []Problem {
	var problems []Problem
	for _, annotation := range slices.Sorted(maps.Keys(annotations)) {
		if !g.unknown(annotation) {
			continue
		}
		text := "annotation " + annotation + " is unknown and has no effect; "
		if name := g.nearest(annotation); name != "" {
			text += "did you mean " + name + "?"
		} else {
			text += "use one of " + strings.Join(g.names(), ", ")
		}
		problems = append(problems, Problem{Rule: text, Text: text})
	}
	return problems
}

// names returns all names without their prefixes.
func (g *Grammar) names() []string {
	var names []string
	for _, key := range g.keys {
		if name := shortName(key); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return append(names, OptionNames()...)
}

// nearest returns the known name that is most similar to an unknown annotation, or "" if none is.
func (g *Grammar) nearest(annotation string) string {
	prefix, wrong, _ := strings.Cut(annotation, "/")
	known := OptionNames()
	for _, key := range g.keys {
		if under, name, _ := strings.Cut(key, "/"); under == prefix {
			known = append(known, name)
		}
	}
	const slips = 2
	best, found := slips+1, ""
	for _, name := range known {
		if d := distance(wrong, name); d < best {
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

// ignored returns a problem for each other accepted annotation that asks for something else than
// the one in effect. One that asks for the same does no harm.
func (g *Grammar) ignored(annotations map[string]string, counts, value string) []Problem {
	var problems []Problem
	for _, key := range g.keys {
		if other, found := annotations[key]; found && other != value {
			text := "annotation " + key + " is ignored, because " + counts + " takes precedence; remove one of them"
			problems = append(problems, Problem{Rule: text, Text: text})
		}
	}
	return problems
}
