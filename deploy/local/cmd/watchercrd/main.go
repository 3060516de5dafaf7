// Command watchercrd reads the CustomResourceDefinition from controller-gen, and prints
// the installed manifest. `make generate` runs it.
package main

import (
	"fmt"
	"io"
	"os"
)

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "watchercrd:", err)
		os.Exit(1)
	}
}

func run(in io.Reader, out io.Writer) error {
	text, err := io.ReadAll(in)
	if err != nil {
		return fmt.Errorf("read the definition: %w", err)
	}
	return writeManifest(out, text)
}
