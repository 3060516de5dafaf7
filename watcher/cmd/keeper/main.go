// Command keeper creates a ConfigMap for each Watcher and reports its state.
package main

import (
	"os"

	"github.com/kv8s/curl-me-that/proto/process"
	"github.com/kv8s/curl-me-that/watcher/internal/leader/lease"
	"github.com/kv8s/curl-me-that/watcher/keeper"
)

// gcPercent trades CPU time for memory: keeper is mostly idle.
const gcPercent = 25

func main() {
	process.LimitGarbage(gcPercent)
	os.Exit(process.Execute(keeper.Command(lease.Elect)))
}
