// Package valuestable makes the table of a chart's README from its values.yaml.
package valuestable

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Markers around the table in a README.
const (
	Begin = "<!-- values: made by `make generate` from values.yaml -->"
	End   = "<!-- /values -->"
)

// Make returns a Markdown table with a row for each value: its path, its default and the
// comment above it. Three or more components with the same value, default and comment
// share a row. A value without a comment is an error.
func Make(values []byte) (string, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(values, &document); err != nil {
		return "", fmt.Errorf("read values: %w", err)
	}
	if len(document.Content) != 1 {
		return "", errors.New("read values: the file has none")
	}
	all, err := rows("", document.Content[0])
	if err != nil {
		return "", err
	}
	shared := map[row]int{}
	for _, r := range all {
		shared[r.ofAny()]++
	}
	table := &strings.Builder{}
	table.WriteString("value | default | description\n---|---|---\n")
	for _, r := range all {
		if of := r.ofAny(); shared[of] < 0 {
			continue
		} else if shared[of] >= 3 {
			r, shared[of] = of, -1
		}
		fmt.Fprintf(table, "`%s` | %s | %s\n", r.path, r.value, r.comment)
	}
	return table.String(), nil
}

// Insert returns a README with the table between its markers replaced.
func Insert(readme, table string) (string, error) {
	before, rest, begun := strings.Cut(readme, Begin)
	_, after, ended := strings.Cut(rest, End)
	if !begun || !ended {
		return "", fmt.Errorf("README needs the lines %q and %q around the table", Begin, End)
	}
	return before + Begin + "\n" + table + End + after, nil
}

type row struct{ path, value, comment string }

// ofAny returns the row with a placeholder for the component.
func (r row) ofAny() row {
	if dot := strings.LastIndex(r.path, "."); dot >= 0 {
		r.path = "COMPONENT" + r.path[dot:]
	}
	return r
}

// rows returns a row for each node with a comment. Nodes without one contain others.
func rows(prefix string, node *yaml.Node) ([]row, error) {
	var all []row
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		path, comment := prefix+key.Value, text(key.HeadComment)
		switch {
		case comment != "":
			shown, err := inline(value)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
			all = append(all, row{path, shown, comment})
		case value.Kind == yaml.MappingNode && len(value.Content) > 0:
			below, err := rows(path+".", value)
			if err != nil {
				return nil, err
			}
			all = append(all, below...)
		default:
			return nil, fmt.Errorf("%s has no comment", path)
		}
	}
	return all, nil
}

// text returns a comment as one line for a cell.
func text(comment string) string {
	var words []string
	for line := range strings.Lines(comment) {
		words = append(words, strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "#"))...)
	}
	return strings.ReplaceAll(strings.Join(words, " "), "|", `\|`)
}

// inline returns a value as JSON in backticks, or nothing for an empty value.
func inline(node *yaml.Node) (string, error) {
	var value any
	if err := node.Decode(&value); err != nil {
		return "", err
	}
	out, err := json.Marshal(value)
	if text := string(out); text != `""` && text != "{}" && text != "[]" {
		return "`" + text + "`", err
	}
	return "", err
}
