// Curlctl shows operators what curl-me-that does, and replays what has failed.
package main

import (
	"os"
	"runtime/debug"

	"github.com/kv8s/curl-me-that/deploy/curlctl"
	"github.com/kv8s/curl-me-that/proto/service"
)

// collectAt lets the garbage collector run when the heap has grown by so many
// percent. At 70 a list of 50,000 keys took a quarter more processor time, and
// spared 24 MiB of 128. A limit of memory in its place, if it is to spare any for what is
// smaller, lets such a list take three times the processor time.
const collectAt = 150

func main() {
	debug.SetGCPercent(collectAt)
	os.Exit(service.Execute(curlctl.Command(os.Args[0])))
}
