// Package curlctl is the operator's tool: it shows what the pipeline does and
// what has failed, and replays that. It uses NATS, and Kubernetes only
// where the help of a command names it.
package curlctl

import (
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/natsconn"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
	"github.com/kv8s/curl-me-that/proto/service"
)

// pluginName is what the program is called as a plugin of kubectl, which runs
// it for `kubectl curl-me-that`.
const pluginName = "kubectl-curl_me_that"

// Command returns the command line; program is the path by which it was called.
func Command(program string) *cobra.Command { return command(program, time.Now) }

func command(program string, now func() time.Time) *cobra.Command {
	o := &options{now: now}
	cmd := &cobra.Command{
		Use:   "curlctl",
		Short: "See what curl-me-that does, and replay what has failed",
		Long: "Curlctl shows what the pipeline of curl-me-that does and what has failed, and\n" +
			"replays that. It connects to NATS; commands that read Kubernetes are marked.\n\n" +
			"Exit codes: 0 done; 1 failed; 2 wrong usage; 3 no connection; 4 not permitted;\n" +
			"5 not found; 6 a replay failed again or is not known to have ended; 7 doctor or\n" +
			"check found something; 8 not confirmed, so that nothing was done.",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	if strings.TrimSuffix(filepath.Base(program), ".exe") == pluginName {
		cmd.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl curl-me-that"}
	}
	o.bindFlags(cmd)
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usagef("%w", err) })
	cmd.AddCommand(
		failingCommand(o), failuresCommand(o), replayCommand(o), refetchCommand(o),
		statusCommand(o), podsCommand(o), wantsCommand(o), timersCommand(o), watchCommand(o),
		pauseCommand(o), resumeCommand(o), auditCommand(o),
		checkCommand(o), setupCommand(o), doctorCommand(o), identitiesCommand(o), consoleCommand(o),
	)
	return cmd
}

// bindFlags adds the flags that all commands have.
func (o *options) bindFlags(cmd *cobra.Command) {
	fs := cmd.PersistentFlags()
	o.nats.BindFlags(fs)
	o.print.BindFlags(fs)
	fs.StringVarP(&o.namespace, "namespace", "n", "", "only this namespace; without it all")
	fs.BoolVarP(&o.all, "all-namespaces", "A", false, "all namespaces, as without --namespace")
	complete(cmd, "output", cobra.FixedCompletions(printer.Formats(), silently))
	complete(cmd, "context", completeContexts)
	complete(cmd, "namespace", o.completeNamespaces)
}

// complete names what completes the value of a flag.
func complete(cmd *cobra.Command, flag string, by cobra.CompletionFunc) {
	_ = cmd.RegisterFlagCompletionFunc(flag, by) // fails for a flag that does not exist only
}

// bindName adds the flag that selects ConfigMaps by name.
func (o *options) bindName(cmd *cobra.Command, name *string) {
	cmd.Flags().StringVar(name, "name", "", "only ConfigMaps with this name")
	complete(cmd, "name", o.completeNames)
}

func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	cmd.SuggestionsMinimumDistance = 2 // edits, as by default where cobra itself suggests
	if similar := cmd.SuggestionsFor(args[0]); len(similar) > 0 {
		return usagef("%s has no command %q; did you mean %s?", cmd.CommandPath(), args[0], strings.Join(similar, " or "))
	}
	return usagef("%s takes no %q; see `%s --help`", cmd.CommandPath(), args[0], cmd.CommandPath())
}

// environment sets flags from their twins for completion, which runs before
// anything else does.
func environment(cmd *cobra.Command) {
	for _, name := range natsconn.Names() {
		if value := os.Getenv(service.EnvName(name)); value != "" && !cmd.Flags().Changed(name) {
			_ = cmd.Flags().Set(name, value) // an error has no place in completion
		}
	}
}
