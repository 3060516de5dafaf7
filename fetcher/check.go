package fetcher

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/kv8s/curl-me-that/fetcher/internal/egress"
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
			"connect. It exits with 0 if the URL is permitted and with 1 if not. Give it the\n" +
			"flags and the policy file of the fetcher.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return check(cmd.Context(), cmd.OutOrStdout(), cfg, namespace, args[0])
		},
	}
	cmd.Flags().StringVar(&namespace, "namespace", "default", "namespace whose policy applies")
	cfg.BindPolicyFlags(cmd.Flags())
	return cmd
}

// verdictOf checks a URL in its canonical form, like the URL of an annotation.
func verdictOf(ctx context.Context, gate *egress.Gate, namespace, raw string) egress.Verdict {
	url, wrong := weburl.Canonical(raw, defaultScheme)
	if wrong != "" {
		return egress.Verdict{Reason: wrong, Err: errors.New(wrong)}
	}
	return gate.Verdict(ctx, namespace, url)
}

// defaultScheme is the default of the watcher's flag.
const defaultScheme = "https"

func check(ctx context.Context, out io.Writer, cfg Config, namespace, raw string) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	gate, client, err := newGetter(cfg, zerolog.Nop(), nil)
	if err != nil {
		return err
	}
	verdict := verdictOf(ctx, gate, namespace, raw)
	word := "denied"
	if verdict.Allowed {
		word = "allowed"
	}
	fmt.Fprintf(out, "%s: %s\n", word, verdict.Reason)
	for _, a := range verdict.Addresses {
		if a.Err != nil {
			fmt.Fprintf(out, "  %s: %s\n", a.Addr, a.Err)
			continue
		}
		fmt.Fprintf(out, "  %s: may be reached\n", a.Addr)
	}
	url, _ := weburl.Canonical(raw, defaultScheme)
	if credential := client.Credential(namespace, url); credential != "" {
		fmt.Fprintln(out, credential)
	}
	if !verdict.Allowed {
		return process.ExitError{Err: verdict.Err, Code: 1, Silent: true}
	}
	return nil
}
