// Command writer writes fetched bodies into ConfigMaps.
package main

import (
	"os"

	"github.com/kv8s/curl-me-that/proto/process"
	"github.com/kv8s/curl-me-that/writer"
)

func main() { os.Exit(process.Execute(writer.Command())) }
