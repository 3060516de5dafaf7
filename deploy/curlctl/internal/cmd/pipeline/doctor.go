package pipeline

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/cli"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/cluster"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/doctor"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
)

// DoctorCommand returns the command doctor.
func DoctorCommand(o *cli.Options) *cobra.Command {
	var release string
	cmd := &cobra.Command{
		Use: "doctor",
		Short: "Check connection, permissions, clock, streams, consumers and timers, or rights in Kubernetes, and " +
			"print fixes",
		Args: cli.NoArgs,
	}
	pipeline := o.Run(func(ctx context.Context, s *cli.Session, _ []string) error {
		findings, err := doctor.Examine(ctx, s.Connection, s.Now)
		return report(s.Out, findings, err)
	})
	rights := o.Offline(func(cmd *cobra.Command, out *printer.Printer, _ []string) error {
		namespace, name, found := strings.Cut(release, "/")
		if !found || namespace == "" || name == "" {
			return cli.Usagef("--kubernetes=%s is not of the form NAMESPACE/RELEASE", release)
		}
		config, err := cluster.Config(o.Kube)
		if err != nil {
			return err
		}
		findings, err := doctor.Rights(cmd.Context(), config, doctor.Release{Namespace: namespace, Name: name}, o.Namespace)
		return report(out, findings, err)
	})
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if cmd.Flags().Changed("kubernetes") {
			return rights(cmd, args)
		}
		return pipeline(cmd, args)
	}
	const installed = "curl-me-that/curl-me-that"
	cmd.Flags().StringVar(&release, "kubernetes", installed,
		"review the rights of the service accounts of this NAMESPACE/RELEASE instead, without NATS")
	cmd.Flags().Lookup("kubernetes").NoOptDefVal = installed
	return cmd
}

// report prints findings. If one is bad, it returns the exit code.
func report(out *printer.Printer, findings []doctor.Finding, err error) error {
	if err == nil {
		err = printFindings(out, findings)
	}
	if err == nil && slices.ContainsFunc(findings, func(f doctor.Finding) bool { return f.State == doctor.Bad }) {
		return cli.Silent(cli.Found)
	}
	return err
}

// defaultWidth is the maximum width, which is used without a terminal.
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
