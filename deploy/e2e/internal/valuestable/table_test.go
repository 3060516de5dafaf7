package valuestable_test

import (
	"testing"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/valuestable"
)

func TestMake(t *testing.T) {
	for name, c := range map[string]struct{ values, table, err string }{
		"values, nested and in flow": {
			values: "# About the file.\n\n# What it\n# is | not.\nname: \"\"\nimage:\n  # Where.\n  registry: x\n# " +
				"All.\nlimits:\n  cpu: 1\n  list: [a]\n",
			table: "value | default | description\n---|---|---\n" +
				"`name` |  | What it is \\| not.\n" +
				"`image.registry` | `\"x\"` | Where.\n" +
				"`limits` | `{\"cpu\":1,\"list\":[\"a\"]}` | All.\n",
		},
		"values of several components": {
			values: "a:\n  # Same.\n  x: 1\n  # Own.\n  y: 1\nb:\n  # Same.\n  x: 1\n  # Own.\n  y: 1\nc:\n  # Same.\n  x: 1\n",
			table: "value | default | description\n---|---|---\n" +
				"`COMPONENT.x` | `1` | Same.\n`a.y` | `1` | Own.\n`b.y` | `1` | Own.\n",
		},
		"a value without a comment":          {values: "# A.\na: 1\nb:\n  c: 2\n", err: "b.c has no comment"},
		"an empty mapping without a comment": {values: "a: {}\n", err: "a has no comment"},
		"no values":                          {values: "", err: "read values: the file has none"},
		"what is no YAML, said in a sentence": {
			values: "a: [",
			err:    "read values: yaml: line 1: did not find expected node content",
		},
	} {
		t.Run(name, func(t *testing.T) {
			table, err := valuestable.Make([]byte(c.values))
			said := ""
			if err != nil {
				said = err.Error()
			}
			if table != c.table || said != c.err {
				t.Errorf("got table:\n%s\nerror: %s\nwant:\n%s\nerror: %s", table, said, c.table, c.err)
			}
		})
	}
}

func TestInsert(t *testing.T) {
	readme := "a\n" + valuestable.Begin + "\nold\n" + valuestable.End + "\nb\n"
	got, err := valuestable.Insert(readme, "new\n")
	if want := "a\n" + valuestable.Begin + "\nnew\n" + valuestable.End + "\nb\n"; err != nil || got != want {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
	if _, err := valuestable.Insert("a\n", "new\n"); err == nil {
		t.Error("a README without markers is taken")
	}
}
