// Curlctl shows operators what curl-me-that does, and replays what has failed.
package main

import (
	"os"
	"runtime/debug"

	"github.com/kv8s/curl-me-that/deploy/curlctl"
	"github.com/kv8s/curl-me-that/proto/service"
)

// collectAt lets the garbage collector run when the heap has grown by so many
// percent. At 30 it took two fifths of the time of a list of 50,000 keys, and spared
// 1 MiB of 54 for a replay of 18,000 failures. A limit of memory in its place lets
// such a list, which needs more than any limit for those, take three times the CPU.
const collectAt = 70

func main() {
	debug.SetGCPercent(collectAt)
	os.Exit(service.Execute(curlctl.Command(os.Args[0])))
}
