// Command verify-docs fails when a page of the repository names a file, heading,
// Go symbol or spec that does not exist, and with --words when a Go file uses a
// word of that list. `make verify` runs it in the root of the repository.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"

	"github.com/kv8s/curl-me-that/deploy/local/internal/docs"
)

func main() {
	words := flag.String("words", "", "check Go files for the retired words of this `file`, in place of the pages")
	flag.Parse()
	if err := run(*words); err != nil {
		fmt.Fprintln(os.Stderr, "verify-docs:", err)
		os.Exit(1)
	}
}

func run(words string) error {
	tree := os.DirFS(".")
	files, err := docs.Files(tree)
	if err != nil {
		return err
	}
	var problems []docs.Problem
	if words == "" {
		problems, err = docs.Check(tree, files)
	} else {
		var list []byte
		if list, err = os.ReadFile(words); err == nil {
			problems, err = docs.Words(tree, files, list)
		}
	}
	if err != nil {
		return err
	}
	for _, p := range problems {
		fmt.Println(p)
	}
	if len(problems) > 0 {
		return errors.New("the pages or words above do not fit the code")
	}
	return nil
}
