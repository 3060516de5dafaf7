// Command keeper makes a ConfigMap of each Watcher, and reports how it fares.
package main

import (
	"os"

	"github.com/kv8s/curl-me-that/proto/service"
	"github.com/kv8s/curl-me-that/watcher/keeper"
)

func main() { os.Exit(service.Execute(keeper.Command())) }
