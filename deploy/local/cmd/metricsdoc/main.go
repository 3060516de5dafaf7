// Command metricsdoc prints deploy/docs/metrics.md from the definitions of all metrics in the code. `make generate`
// runs it.
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
