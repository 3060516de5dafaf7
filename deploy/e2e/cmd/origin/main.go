// Command origin is a web server to try curl-me-that with: some pages for
// people, and pages that a test outside controls.
package main

import (
	"os"

	"github.com/kv8s/curl-me-that/proto/process"
)

func main() { os.Exit(process.Execute(command())) }
