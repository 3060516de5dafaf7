package main

import (
	_ "embed" // the page's head
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

//go:embed WATCHER.md.tmpl
var head string

// writePage prints the page about all fields.
func writePage(out io.Writer, text []byte) error {
	_, schema, err := parse(text)
	if err != nil {
		return err
	}
	if _, err := io.WriteString(out, head); err != nil {
		return err
	}
	for _, part := range []string{"spec", "status"} {
		if _, err := fmt.Fprintf(out, "\n## %s\n\n| field | type | meaning |\n|---|---|---|\n", part); err != nil {
			return err
		}
		if err := writeFields(out, child(child(schema, "properties"), part), ""); err != nil {
			return err
		}
	}
	return nil
}

// writeFields prints one row for each field below a schema.
func writeFields(out io.Writer, schema map[string]any, prefix string) error {
	properties := child(schema, "properties")
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		field := child(properties, name)
		_, err := fmt.Fprintf(out, "| `%s` | %s | %s |\n", prefix+name, typeOf(field), meaning(schema, name, field))
		if err != nil {
			return err
		}
		if slices.Contains(embedded, name) && prefix == "" || name == "conditions" {
			continue
		}
		below, inner := prefix+name+".", field
		if items := child(field, "items"); items != nil {
			below, inner = prefix+name+"[].", items
		}
		if err := writeFields(out, inner, below); err != nil {
			return err
		}
	}
	return nil
}

// typeOf names the type of a field, with the bounds that the schema gives it.
func typeOf(field map[string]any) string {
	name, _ := field["type"].(string)
	if values, found := field["enum"].([]any); found {
		words := make([]string, len(values))
		for i, value := range values {
			words[i] = fmt.Sprintf("`%v`", value)
		}
		name = strings.Join(words, " or ")
	}
	if name == "array" {
		name = "list"
	}
	for _, bound := range []string{"maxItems", "maxProperties", "maxLength"} {
		if value, found := field[bound]; found {
			name += fmt.Sprintf(", at most %v", value)
		}
	}
	if value, found := field["default"]; found {
		if _, composed := value.(map[string]any); !composed {
			name += fmt.Sprintf(", default `%v`", value)
		}
	}
	return name
}

// meaning is the description of a field and the rules that it has to pass.
func meaning(schema map[string]any, name string, field map[string]any) string {
	description, _ := field["description"].(string)
	parts := strings.Fields(description)
	required, _ := schema["required"].([]any)
	if slices.Contains(required, any(name)) {
		parts = append(parts, "Required.")
	}
	rules, _ := field["x-kubernetes-validations"].([]any)
	for _, value := range rules {
		rule, _ := value.(map[string]any)
		if message, _ := rule["message"].(string); message != "" {
			parts = append(parts, "*"+message+".*")
		}
	}
	return strings.ReplaceAll(strings.Join(parts, " "), "|", "\\|")
}
