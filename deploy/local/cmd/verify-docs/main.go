// Command verify-docs fails if a page of the repository names a file, heading or Go
// symbol that does not exist. `make verify` runs it in the root of the repository.
package main

import (
	"fmt"
	"os"

	"github.com/kv8s/curl-me-that/deploy/local/internal/docs"
)

func main() {
	problems, err := docs.Check(os.DirFS("."))
	if err != nil {
		fmt.Fprintln(os.Stderr, "verify-docs:", err)
		os.Exit(1)
	}
	for _, p := range problems {
		fmt.Println(p)
	}
	if len(problems) > 0 {
		os.Exit(1)
	}
}
