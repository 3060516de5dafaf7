// Command writer puts what was fetched into ConfigMaps.
package main

import (
	"os"

	"github.com/kv8s/curl-me-that/proto/service"
	"github.com/kv8s/curl-me-that/writer"
)

func main() { os.Exit(service.Execute(writer.Command())) }
