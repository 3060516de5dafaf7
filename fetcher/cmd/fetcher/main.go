// Fetcher curls what ConfigMaps ask for and hands the bodies to the writer.
package main

import (
	"os"

	"github.com/kv8s/curl-me-that/fetcher"
	"github.com/kv8s/curl-me-that/proto/process"
)

func main() { os.Exit(process.Execute(fetcher.Command())) }
