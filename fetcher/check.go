package fetcher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kv8s/curl-me-that/proto/annotation/weburl"
	"github.com/kv8s/curl-me-that/proto/process"
)

// checkCommand prints the verdict of the egress policy on a URL.
func checkCommand() *cobra.Command {
	cfg := DefaultConfig()
	var namespace string
	cmd := &cobra.Command{
		Use:   "check URL",
		Short: "Check whether the egress policy permits a URL",
		Long: "Check applies the egress policy to a URL like a fetch and looks its name up, but does not\n" +
			"connect. It exits with 0 if the URL is permitted and with 1 if not. Use the flags and\n" +
			"the policy file of the fetcher. In a fetcher's container, check takes its flags by itself.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := likeRunning(cmd.Flags(), runningArgs()); err != nil {
				return err
			}
			return check(cmd.Context(), cmd.OutOrStdout(), cfg, namespace, args[0])
		},
	}
	cmd.Flags().StringVar(&namespace, "namespace", "default", "namespace whose policy applies")
	cfg.BindPolicyFlags(cmd.Flags())
	return cmd
}

// runningArgs returns the arguments of the first process of this container, if that is the same program.
func runningArgs() []string {
	self, errSelf := os.Readlink("/proc/self/exe")
	first, errFirst := os.Readlink("/proc/1/exe")
	line, err := os.ReadFile("/proc/1/cmdline")
	if os.Getpid() == 1 || cmp.Or(errSelf, errFirst, err) != nil || self != first {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00")[1:]
}

// likeRunning copies the flags of a running fetcher, unless the user gave them.
func likeRunning(fs *pflag.FlagSet, args []string) error {
	running := pflag.NewFlagSet("", pflag.ContinueOnError)
	running.ParseErrorsAllowlist.UnknownFlags = true
	new(Config).BindFlags(running)
	given := map[string]bool{}
	fs.Visit(func(flag *pflag.Flag) { given[flag.Name] = true })
	return running.ParseAll(args, func(flag *pflag.Flag, value string) error {
		if fs.Lookup(flag.Name) == nil || given[flag.Name] {
			return nil
		}
		return fs.Set(flag.Name, value)
	})
}

// defaultScheme is the default of the watcher's --default-scheme.
const defaultScheme = "https"

func check(ctx context.Context, out io.Writer, cfg Config, namespace, raw string) error {
	preview := Preview{}
	url, wrong := weburl.Canonical(raw, defaultScheme)
	if wrong != "" {
		preview.Reason, preview.err = wrong, errors.New(wrong)
	} else {
		var err error
		if preview, err = cfg.Preview(ctx, PreviewRequest{Namespace: namespace, URL: url}); err != nil {
			return err
		}
	}
	word := "denied"
	if preview.Allowed {
		word = "allowed"
	}
	fmt.Fprintf(out, "%s: %s\n", word, preview.Reason)
	for _, a := range preview.addresses {
		if a.Err != nil {
			fmt.Fprintf(out, "  %s: %s\n", a.Addr, a.Err)
			continue
		}
		fmt.Fprintf(out, "  %s: allowed\n", a.Addr)
	}
	if preview.Credential != "" {
		fmt.Fprintln(out, preview.Credential)
	}
	if !preview.Allowed {
		return process.ExitError{Err: preview.err, Code: 1, Silent: true}
	}
	return nil
}
