// Curlctl shows operators what curl-me-that does, and replays what has failed.
package main

import (
	"os"
	"runtime/debug"

	"github.com/kv8s/curl-me-that/deploy/curlctl"
	"github.com/kv8s/curl-me-that/proto/service"
)

// memoryLimit is soft: above it the garbage collector works harder. Below what 50,000
// keys need it did nothing else: their list took three times the CPU.
const memoryLimit = 96 << 20

func main() {
	debug.SetMemoryLimit(memoryLimit)
	os.Exit(service.Execute(curlctl.Command(os.Args[0])))
}
