package pipeline

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/cli"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/doctor"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
)

// DoctorCommand returns the command doctor.
func DoctorCommand(o *cli.Options) *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Check connection, permissions, clock, streams, consumers and timers, and print fixes",
		Args:  cli.NoArgs,
		RunE: o.Run(func(ctx context.Context, s *cli.Session, _ []string) error {
			findings, err := doctor.Examine(ctx, s.Connection, s.Now)
			if err == nil {
				err = printFindings(s.Out, findings)
			}
			if err == nil && slices.ContainsFunc(findings, func(f doctor.Finding) bool { return f.State == doctor.Bad }) {
				return cli.Silent(cli.Found)
			}
			return err
		}),
	}
}

// defaultWidth is the width of the text without a terminal.
const defaultWidth = 100

func printFindings(out *printer.Printer, findings []doctor.Finding) error {
	if out.ForPrograms() {
		_, err := out.List(printer.Table{}, printer.Rows(findings, func(f doctor.Finding) printer.Row {
			return printer.Row{Name: "check/" + f.Check, Object: f}
		}))
		return err
	}
	colours := map[string]printer.Colour{
		doctor.OK: printer.Green, doctor.Warning: printer.Yellow, doctor.Bad: printer.Red, doctor.Unknown: printer.Grey,
	}
	const name, state = 16, 7
	width := defaultWidth
	if terminal := out.Width(); terminal > 0 {
		width = min(width, terminal)
	}
	margin := strings.Repeat(" ", name+state+4)
	for _, f := range findings {
		lines := printer.Wrap(f.Detail, width-len(margin))
		if f.Fix != "" {
			lines = append(lines, printer.Wrap("To fix it: "+f.Fix, width-len(margin))...)
		}
		pad := strings.Repeat(" ", state-len(f.State))
		out.Linef("%-*s  %s%s  %s", name, f.Check, printer.In(colours[f.State], f.State), pad, lines[0])
		for _, line := range lines[1:] {
			out.Linef("%s%s", margin, line)
		}
	}
	return nil
}
