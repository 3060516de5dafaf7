// Curlctl shows operators the pipeline of curl-me-that, and replays failures.
package main

import (
	"os"

	"github.com/kv8s/curl-me-that/deploy/curlctl"
	"github.com/kv8s/curl-me-that/proto/process"
)

// gcPercent is GOGC, unless the user sets it. With 70, listing 50,000 keys would take 104 MiB instead of 128, but a
// quarter more CPU time.
const gcPercent = 150

func main() {
	process.LimitGarbage(gcPercent)
	os.Exit(process.Execute(curlctl.Command(os.Args[0])))
}
