// Command watcher sees annotated ConfigMaps and publishes what each one wants.
package main

import (
	"os"

	"github.com/kv8s/curl-me-that/proto/service"
	"github.com/kv8s/curl-me-that/watcher"
)

func main() { os.Exit(service.Execute(watcher.Command())) }
