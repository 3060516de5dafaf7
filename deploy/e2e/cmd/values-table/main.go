// Command values-table puts the table of a chart's values into its README.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/valuestable"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "values-table:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("usage: values-table <chart directory>")
	}
	values, err := os.ReadFile(filepath.Join(args[0], "values.yaml"))
	if err != nil {
		return err
	}
	path := filepath.Join(args[0], "README.md")
	readme, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	table, err := valuestable.Make(values)
	if err != nil {
		return err
	}
	current, err := valuestable.Insert(string(readme), table)
	if err != nil || current == string(readme) {
		return err
	}
	return os.WriteFile(path, []byte(current), 0o644) //nolint:gosec // a page of the repository
}
