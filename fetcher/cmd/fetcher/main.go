// Fetcher fetches the URLs of ConfigMaps and passes the bodies to the writer.
package main

import (
	"os"

	"github.com/kv8s/curl-me-that/fetcher"
	"github.com/kv8s/curl-me-that/proto/process"
)

// gcPercent trades memory for CPU time: it saves a tenth of the CPU time for up to 5 MiB. GOMEMLIMIT still holds.
const gcPercent = 200

func main() {
	process.LimitGarbage(gcPercent)
	os.Exit(process.Execute(fetcher.Command()))
}
