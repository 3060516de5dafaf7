// Curlctl shows operators what curl-me-that does, and replays what has failed.
package main

import (
	"os"

	"github.com/kv8s/curl-me-that/deploy/curlctl"
	"github.com/kv8s/curl-me-that/proto/service"
)

func main() { os.Exit(service.Execute(curlctl.Command(os.Args[0]))) }
