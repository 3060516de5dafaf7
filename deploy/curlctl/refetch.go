package curlctl

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/keys"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
)

// refetchRate is the default of --rate, per second.
const refetchRate = 50

// refetching holds the flags of refetch.
type refetching struct {
	keys.Refetch

	rate     keys.Rate
	all, yes bool
}

// refetchCommand returns the command refetch.
func refetchCommand(o *options) *cobra.Command {
	r := &refetching{rate: refetchRate}
	cmd := &cobra.Command{
		Use:   "refetch NAMESPACE/NAME | --all | --host HOST | --url PREFIX",
		Short: "Fetch wanted keys now, whether or not they failed",
		Long: "Fetches the keys of a ConfigMap, of a host or with a URL prefix, or --all keys. --namespace\n" +
			"limits the selection. Unchanged bodies are not written. A host that asked for a pause gets\n" +
			"one fetch at a time per namespace. A good response ends the pause, and the other fetches\n" +
			"follow.",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: o.CompleteObjects,
	}
	cmd.PreRunE = func(_ *cobra.Command, args []string) (err error) {
		r.Namespace = o.Namespace
		switch {
		case len(args) == 0 && !r.all && r.Host == "" && r.URL == "" || len(args) == 1 && r.all:
			return usagef("refetch needs NAMESPACE/NAME, --host, --url or --all")
		case strings.ContainsAny(r.URL, "?@"):
			return usagef("--url must not have credentials or a query")
		case len(args) == 1:
			r.Namespace, r.Name, err = o.Object(args[0])
		}
		return err
	}
	cmd.RunE = o.Run(r.run)
	cmd.Flags().StringVar(&r.Host, "host", "", "fetch keys from this host")
	cmd.Flags().StringVar(&r.URL, "url", "", "fetch keys whose URL begins with this one, such as https://example.com/v1/")
	cmd.Flags().BoolVar(&r.all, "all", false, "fetch all keys, or all of --namespace")
	cmd.Flags().BoolVarP(&r.yes, "yes", "y", false, "skip the confirmation prompt")
	cmd.Flags().Var(&r.rate, "rate", keys.RateUsage)
	return cmd
}

func (r *refetching) run(ctx context.Context, s *session, _ []string) error {
	selected, err := r.Items(ctx, s.Client)
	switch {
	case err != nil:
		return err
	case len(selected) == 0 && r.Name != "":
		return errorf(exitNotFound, "no keys are wanted for %s/%s: not found", r.Namespace, r.Name)
	case len(selected) == 0 && !r.all:
		return errorf(exitNotFound, "no wanted key has this host and URL: not found")
	}
	if !r.yes && len(selected) > confirmAbove {
		if err := s.Confirm("Fetch %s now?", printer.Plural(len(selected), "key")); err != nil {
			return err
		}
	}
	s.HintLoss()
	err = keys.Replay(ctx, s.Client, selected, r.rate, s.Aside.Progress("requested", len(selected)))
	if err == nil {
		done := keys.Verdicts(selected)
		s.Out.Linef("Requested %s.", printer.Plural(done[keys.Replayed]+done[keys.Already], "fetch"))
		s.HintPaused(ctx)
	}
	return err
}
