package curlctl

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/readable"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/replay"
	"github.com/kv8s/curl-me-that/proto/pipeline/operate"
)

// refetchRate is how many fetches are asked for in a second without --rate.
const refetchRate = 50

func refetchCommand(o *options) *cobra.Command {
	var all bool
	r := refetch{pace: replay.Pace{Rate: refetchRate}}
	cmd := &cobra.Command{
		Use:               "refetch NAMESPACE/NAME | --all",
		Short:             "Fetch now what is wanted, also where nothing has failed",
		Long:              "Asks for the fetch of all keys of a ConfigMap, or of all with --all. What has not\nchanged at its URL is not written. A host that has asked for a pause is asked\nall the same, by one fetch at a time for each namespace; a good answer ends the\npause, and what was not let through comes back after it.",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: o.completeObjects,
	}
	cmd.RunE = func(c *cobra.Command, args []string) error {
		r.namespace = o.namespace
		switch {
		case len(args) == 0 && !all, len(args) == 1 && all:
			return usagef("refetch needs either NAMESPACE/NAME or --all")
		case len(args) == 1:
			var err error
			if r.namespace, r.name, err = o.object(args[0]); err != nil {
				return err
			}
		}
		r.line = words(c.Flags(), args)
		return o.run(func(ctx context.Context, s *session, _ []string) error { return s.refetch(ctx, r) })(c, args)
	}
	cmd.Flags().BoolVar(&all, "all", false, "fetch everything, or everything of --namespace")
	cmd.Flags().BoolVarP(&r.yes, "yes", "y", false, "do not ask back, however many there are")
	cmd.Flags().Var((*replay.Rate)(&r.pace.Rate), "rate", replay.RateUsage)
	return cmd
}

// object reads NAMESPACE/NAME, or NAME with --namespace.
func (o *options) object(arg string) (namespace, name string, err error) {
	namespace, name, found := strings.Cut(arg, "/")
	if !found {
		namespace, name = o.namespace, arg
	}
	if namespace == "" || name == "" || strings.Contains(name, "/") {
		return "", "", usagef("%q is not of the form NAMESPACE/NAME", arg)
	}
	return namespace, name, nil
}

// refetch is what the command is asked for.
type refetch struct {
	// namespace and name select objects; empty: all.
	namespace, name string
	pace            replay.Pace
	// line is the command line for the record.
	line string
	// yes leaves the question out.
	yes bool
}

func (s *session) refetch(ctx context.Context, r refetch) error {
	var wants []operate.Want
	for w, err := range readable.Only(&s.unread, s.Client.Wants(ctx, r.namespace, r.name)) {
		if err != nil {
			return err
		}
		w.Want = nil // read again when its turn comes
		wants = append(wants, w)
	}
	if len(wants) == 0 && r.name != "" {
		return exitf(exitNotFound, "nothing is wanted for %s/%s: not found", r.namespace, r.name)
	}
	if !r.yes && len(wants) > askAbove {
		if err := s.confirm("Fetch %s now?", printer.Plural(len(wants), "key")); err != nil {
			return err
		}
	}
	s.hintLoss()
	end, err := s.audit(ctx, "refetch", r.line, len(wants))
	if err != nil {
		return err
	}
	bar := s.aside.Bar("asked", len(wants))
	done, err := replay.Refetch(ctx, s.Client, wants, r.pace, func(n int) { bar.Set(n, "") })
	bar.End()
	if ended := end(ctx, done, len(wants)-done); err == nil {
		err = ended
	}
	if err == nil {
		s.out.Linef("Asked for %s.", printer.Plural(done, "fetch"))
		s.warnPaused(ctx)
	}
	return err
}
