package annotation

import (
	"maps"
	"slices"
	"strings"
)

// OptionNames returns the names under which options are looked up, each below the
// prefix of an accepted annotation key. The chart's admission policy lists them, too.
func OptionNames() []string { return []string{RefreshName, NowName, SuspendName, SHA256Name} }

// Concerns reports whether annotations ask for something, or have a name that
// looks as if they were meant to.
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

// unknown reports whether a name is PREFIX/curl-… under an accepted prefix, and
// none of ours.
func (g *Grammar) unknown(annotation string) bool {
	prefix, name, found := strings.Cut(annotation, "/")
	return found && strings.HasPrefix(name, "curl-") && annotation != StatusKey &&
		slices.Contains(g.prefixes, prefix) && !slices.Contains(OptionNames(), name) && !slices.Contains(g.keys, annotation)
}

// unknownNames mentions annotations that nothing reads.
func (g *Grammar) unknownNames(annotations map[string]string) []Problem {
	var problems []Problem
	for _, annotation := range slices.Sorted(maps.Keys(annotations)) {
		if !g.unknown(annotation) {
			continue
		}
		text := "annotation " + annotation + " is not known and does nothing; "
		if name := g.nearest(annotation); name != "" {
			text += "did you mean " + name + "?"
		} else {
			text += "known are " + strings.Join(g.names(), ", ")
		}
		problems = append(problems, Problem{Rule: text, Text: text})
	}
	return problems
}

// names are all names without their prefixes.
func (g *Grammar) names() []string {
	var names []string
	for _, key := range g.keys {
		if name := shortName(key); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return append(names, OptionNames()...)
}

// nearest returns the name that an unknown annotation may be a slip of; empty:
// none is near.
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

// distance returns how many characters have to be put in, taken out or replaced to
// turn one word into another (Levenshtein).
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

// ignored mentions further accepted annotations that ask for something else than
// the one that counts. One that asks for the same does no harm.
func (g *Grammar) ignored(annotations map[string]string, counts, value string) []Problem {
	var problems []Problem
	for _, key := range g.keys {
		if other, found := annotations[key]; found && other != value {
			text := "annotation " + key + " is ignored, as " + counts + " counts; remove one of them"
			problems = append(problems, Problem{Rule: text, Text: text})
		}
	}
	return problems
}
