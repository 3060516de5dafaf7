// Command watcherdoc reads the CustomResourceDefinition from controller-gen, and prints
// the installed manifest (manifest) or a page about its fields (page). `make generate`
// runs it.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
)

func main() {
	if err := run(os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "watcherdoc:", err)
		os.Exit(1)
	}
}

func run(args []string, in io.Reader, out io.Writer) error {
	text, err := io.ReadAll(in)
	if err != nil {
		return fmt.Errorf("read the definition: %w", err)
	}
	if len(args) == 1 && args[0] == "manifest" {
		return writeManifest(out, text)
	}
	if len(args) == 1 && args[0] == "page" {
		return writePage(out, text)
	}
	return errors.New("name what to print: manifest or page")
}
