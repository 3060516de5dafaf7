// Package curlctl is the command line for operators. It shows the pipeline and its failures, and fetches
// failed keys again.
package curlctl

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/fault"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
	"github.com/kv8s/curl-me-that/proto/process"
)

// pluginName is the name under which kubectl runs the program for `kubectl curl-me-that`.
const pluginName = "kubectl-curl_me_that"

// Command returns the root command. Program is the path by which it was called.
func Command(program string) *cobra.Command { return command(program, time.Now) }

func command(program string, now func() time.Time) *cobra.Command {
	o := &options{Now: now}
	cmd := &cobra.Command{
		Use:   "curlctl",
		Short: "Show the pipeline of curl-me-that, and replay failures",
		Long: "Curlctl shows the pipeline of curl-me-that and its failures, and replays them. It connects\n" +
			"to NATS. Commands that read Kubernetes say so.\n\n" +
			"Exit codes: 0 done, 1 failed, 2 wrong usage, 3 no connection, 4 not permitted, 5 not found,\n" +
			"6 interrupted, or a replay failed again or did not end in time, 7 doctor, check or\n" +
			"setup --dry-run found a problem, 8 not confirmed, so nothing was done.",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	if strings.TrimSuffix(filepath.Base(program), ".exe") == pluginName {
		cmd.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl curl-me-that"}
	}
	o.BindFlags(cmd)
	cmd.SetFlagErrorFunc(process.FlagError)
	cmd.AddCommand(
		failingCommand(o), failuresCommand(o), replayCommand(o), refetchCommand(o),
		statusCommand(o), wantsCommand(o), pauseCommand(o), resumeCommand(o),
		checkCommand(o), handOverCommand(o), setupCommand(o), doctorCommand(o),
		historyCommand(o), diffCommand(o), rollbackCommand(o), acceptCommand(o), unpinCommand(o),
		identitiesCommand(o), consoleCommand(o), hooksCommand(o),
	)
	return cmd
}

// errorf returns a printable error with the exit code of a kind.
func errorf(kind fault.Kind, format string, args ...any) error {
	return process.ExitError{Err: printable{fmt.Errorf(format, args...)}, Code: kind.Exit}
}

// printable is an error whose text tenants and servers may control.
type printable struct{ error }

// Error returns the text without control characters other than line breaks.
func (p printable) Error() string {
	lines := strings.Split(p.error.Error(), "\n")
	for i, line := range lines {
		lines[i] = printer.Printable(line)
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns the error.
func (p printable) Unwrap() error { return p.error }

// usagef returns an error about the command line.
func usagef(format string, args ...any) error { return errorf(fault.Usage, format, args...) }

// notFound returns an error about a ConfigMap that does not exist.
func notFound(namespace, name string) error {
	return errorf(fault.NotFound, "ConfigMap %s/%s: not found", namespace, name)
}

// notNegative returns an error if the value of a flag is negative.
func notNegative(flag string, value int) error {
	if value < 0 {
		return usagef("--%s must not be negative", flag)
	}
	return nil
}

// silent returns the exit code of a kind without a message.
func silent(kind fault.Kind) error { return process.ExitError{Code: kind.Exit, Silent: true} }

// withCode adds the exit code to an error.
func withCode(ctx context.Context, err error) error {
	if err == nil || errors.As(err, new(process.ExitError)) {
		return err
	}
	kind, err := fault.Of(context.Cause(ctx), err)
	return errorf(kind, "%w", err)
}
