// Curlctl shows operators what curl-me-that does, and replays what has failed.
package main

import (
	"os"
	"runtime/debug"

	"github.com/kv8s/curl-me-that/deploy/curlctl"
	"github.com/kv8s/curl-me-that/proto/service"
)

// collectAt lets the garbage collector run when the heap has grown by so many
// percent. A limit of memory in its place lets a list of 50,000 keys, which needs
// more than any limit for 20,000 failures, take three times the CPU.
const collectAt = 30

func main() {
	debug.SetGCPercent(collectAt)
	os.Exit(service.Execute(curlctl.Command(os.Args[0])))
}
