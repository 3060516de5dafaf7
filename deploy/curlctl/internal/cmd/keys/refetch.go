package keys

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/cli"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/readable"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/replay"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// refetchRate is the default of --rate, per second.
const refetchRate = 50

// refetching holds the flags of refetch.
type refetching struct {
	// namespace and name select ConfigMaps; empty: all.
	namespace, name string
	rate            replay.Rate
	all, yes        bool
	// line is the command line for the audit.
	line string
}

// RefetchCommand returns the command refetch.
func RefetchCommand(o *cli.Options) *cobra.Command {
	r := &refetching{rate: refetchRate}
	cmd := &cobra.Command{
		Use:   "refetch NAMESPACE/NAME | --all",
		Short: "Fetch wanted keys now, whether or not they failed",
		Long: "Fetches all keys of a ConfigMap, or of all ConfigMaps with --all. Unchanged bodies are\n" +
			"not written. A host that asked for a pause gets one fetch at a time per namespace. A\n" +
			"good response ends the pause, and the other fetches follow.",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: o.CompleteObjects,
	}
	cmd.RunE = func(c *cobra.Command, args []string) (err error) {
		r.namespace = o.Namespace
		switch {
		case (len(args) == 0) == !r.all:
			return cli.Usagef("refetch needs either NAMESPACE/NAME or --all")
		case len(args) == 1:
			if r.namespace, r.name, err = o.Object(args[0]); err != nil {
				return err
			}
		}
		r.line = cli.Words(c.Flags(), args)
		return o.Run(r.run)(c, args)
	}
	cmd.Flags().BoolVar(&r.all, "all", false, "fetch all keys, or all of --namespace")
	cmd.Flags().BoolVarP(&r.yes, "yes", "y", false, "skip the confirmation prompt")
	cmd.Flags().Var(&r.rate, "rate", replay.RateUsage)
	return cmd
}

func (r *refetching) run(ctx context.Context, s *cli.Session, _ []string) error {
	var selected []pipeline.Key
	for w, err := range readable.Only(&s.Unread, s.Client.Wants(ctx, r.namespace, r.name)) {
		if err != nil {
			return err
		}
		selected = append(selected, w.Key)
	}
	if len(selected) == 0 && r.name != "" {
		return cli.Errorf(cli.NotFound, "no keys are wanted for %s/%s: not found", r.namespace, r.name)
	}
	if !r.yes && len(selected) > cli.ConfirmAbove {
		if err := s.Confirm("Fetch %s now?", printer.Plural(len(selected), "key")); err != nil {
			return err
		}
	}
	s.HintLoss()
	end, err := s.Audit(ctx, "refetch", r.line, len(selected))
	if err != nil {
		return err
	}
	bar := s.Aside.Bar("requested", len(selected))
	done, err := replay.Refetch(ctx, s.Client, selected, r.rate, func(n int) { bar.Set(n, "") })
	bar.End()
	if ended := end(ctx, done, len(selected)-done); err == nil {
		err = ended
	}
	if err == nil {
		s.Out.Linef("Requested %s.", printer.Plural(done, "fetch"))
		s.HintPaused(ctx)
	}
	return err
}
