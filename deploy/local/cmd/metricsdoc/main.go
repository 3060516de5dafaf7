// Command metricsdoc prints deploy/docs/metrics.md: all metrics of all services, as
// the code defines them. `make generate` runs it.
package main

import (
	"fmt"
	"os"
)

func main() {
	if err := write(os.Stdout, sections()); err != nil {
		fmt.Fprintln(os.Stderr, "metricsdoc:", err)
		os.Exit(1)
	}
}
