package curlctl

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/doctor"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/natsconn"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
)

func doctorCommand(o *options) *cobra.Command {
	system := natsconn.Options{Timeout: 5 * time.Second}
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Test connection, permissions, clock, streams, consumers and timers, and print how to mend each",
		Args:  noArgs,
		RunE: o.run(func(ctx context.Context, s *session, _ []string) error {
			examined := doctor.Options{Now: s.now}
			if system.Context != "" {
				examined.System = &system
			}
			findings, err := doctor.Examine(ctx, s.Connection, examined)
			if err != nil {
				return err
			}
			return s.printFindings(findings)
		}),
	}
	cmd.Flags().StringVar(&system.Context, "system-context", "", "context of the nats command for the system account, to read sync_interval")
	return cmd
}

// doctorWidth is the width of the text where there is no terminal.
const doctorWidth = 100

func (s *session) printFindings(findings []doctor.Finding) error {
	var err error
	if s.out.ForPrograms() {
		_, err = s.out.List(nil, printer.Rows(findings, func(f doctor.Finding) printer.Row {
			return printer.Row{Name: "check/" + f.Check, Object: f}
		}))
	} else {
		s.printFindingsText(findings)
	}
	if err == nil && slices.ContainsFunc(findings, func(f doctor.Finding) bool { return f.State == doctor.Bad }) {
		return silent(exitFound)
	}
	return err
}

// printFindingsText prints the findings in lines of a bounded width: what was found
// and, below it, what to do.
func (s *session) printFindingsText(findings []doctor.Finding) {
	colours := map[string]printer.Colour{doctor.OK: printer.Green, doctor.Warning: printer.Yellow, doctor.Bad: printer.Red, doctor.Unknown: printer.Grey}
	const name, state = 16, 7
	width := doctorWidth
	if terminal := s.out.Width(); terminal > 0 {
		width = min(width, terminal)
	}
	margin := strings.Repeat(" ", name+state+4)
	for _, f := range findings {
		lines := printer.Wrap(f.Detail, width-len(margin))
		if f.Mend != "" {
			lines = append(lines, printer.Wrap("To mend it: "+f.Mend, width-len(margin))...)
		}
		s.out.Linef("%-*s  %s%s  %s", name, f.Check, printer.In(colours[f.State], f.State), strings.Repeat(" ", state-len(f.State)), lines[0])
		for _, line := range lines[1:] {
			s.out.Linef("%s%s", margin, line)
		}
	}
}
