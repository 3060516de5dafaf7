// Command keeper makes a ConfigMap of each Watcher, and reports how it fares.
package main

import (
	"os"

	"github.com/kv8s/curl-me-that/proto/process"
	"github.com/kv8s/curl-me-that/watcher/internal/leader/lease"
	"github.com/kv8s/curl-me-that/watcher/keeper"
)

// gcPercent is how much garbage there may be beside what is in use. Keeper works
// in short bursts between long times of rest, as the watcher does.
const gcPercent = 25

func main() {
	process.LimitGarbage(gcPercent)
	os.Exit(process.Execute(keeper.Command(lease.Elect)))
}
