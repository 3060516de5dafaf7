// Fetcher fetches the URLs of ConfigMaps and passes the bodies to the writer.
package main

import (
	"os"

	"github.com/kv8s/curl-me-that/fetcher"
	"github.com/kv8s/curl-me-that/proto/process"
)

func main() { os.Exit(process.Execute(fetcher.Command())) }
