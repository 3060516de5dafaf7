package world

import (
	"errors"
	"fmt"
	"os"
	"strings"

	. "github.com/onsi/ginkgo/v2"
)

// timesFile is the variable with the file that each suite adds the times of its
// specs to. go test shows nothing of a suite that passes.
const timesFile = "SPEC_TIMES"

// noteTimes adds a line for each spec that ran: its seconds and its name. No
// file: nothing.
func noteTimes(file string, r Report) (err error) {
	if file == "" {
		return nil
	}
	var lines strings.Builder
	for _, spec := range r.SpecReports {
		if spec.NumAttempts > 0 && spec.LeafNodeText != "" {
			fmt.Fprintf(&lines, "%8.1f  %s: %s\n", spec.RunTime.Seconds(), r.SuiteDescription, spec.FullText())
		}
	}
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("note the times of specs: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := f.WriteString(lines.String()); err != nil {
		return fmt.Errorf("note the times of specs: %w", err)
	}
	return nil
}
