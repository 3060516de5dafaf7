package curlctl

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

func setupCommand(o *options) *cobra.Command {
	var topology pipeline.Topology
	dryRun, watch := false, false
	cmd := &cobra.Command{
		Use:   "setup",
		Short: "Create the streams and consumers, or bring them up to date",
		Long: "Creates the streams and consumers, or brings them up to date. With --watch it stays\n" +
			"until interrupted and creates what is missing, whenever that is, so that a NATS that\n" +
			"has lost everything heals without a person; what exists it leaves as it is.",
		Args: noArgs,
		PreRunE: func(*cobra.Command, []string) error {
			if err := topology.Validate(); err != nil {
				return usagef("%w", err)
			}
			return nil
		},
		RunE: o.run(func(ctx context.Context, s *session, _ []string) error {
			if watch {
				return s.heal(ctx, topology)
			}
			differ, err := pipeline.Compare(ctx, s.JetStream, topology)
			if err != nil {
				return err
			}
			for _, d := range differ {
				s.out.Linef("%s %s", printer.In(printer.Yellow, "differs:"), d)
			}
			switch {
			case len(differ) == 0:
				s.out.Linef("Streams and consumers are as they must be.")
				return nil
			case dryRun:
				return silent(exitFound)
			}
			if _, err := pipeline.Ensure(ctx, s.JetStream, topology); err != nil {
				return err
			}
			s.out.Linef("Streams and consumers are as they must be now.")
			return nil
		}),
	}
	fs := cmd.Flags()
	fs.BoolVar(&dryRun, "dry-run", false, "only compare; exit with 7 if something differs")
	fs.BoolVar(&watch, "watch", false, "stay, and create what is missing whenever it is")
	cmd.MarkFlagsMutuallyExclusive("dry-run", "watch")
	topology.BindFlags(fs, "replicas")
	return cmd
}

const (
	// healPeriod is how often it is looked for what is missing, and healTimeout
	// bounds one look.
	healPeriod  = 2 * time.Second
	healTimeout = 30 * time.Second
)

// heal creates what is missing until ctx is done. That it cannot is logged
// once, until it can.
func (s *session) heal(ctx context.Context, topology pipeline.Topology) error {
	topology.KeepExisting = true
	ticker := time.NewTicker(healPeriod)
	defer ticker.Stop()
	s.hint("Creating the streams and consumers that are missing at %s; Ctrl-C ends it.", s.Where)
	for failing := false; ; {
		limited, cancel := context.WithTimeout(ctx, healTimeout)
		_, err := pipeline.Ensure(limited, s.JetStream, topology)
		cancel()
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil && !failing:
			s.hint("Not all streams and consumers are there, trying again: %v", err)
		case err == nil && failing:
			s.hint("All streams and consumers are there.")
		}
		failing = err != nil
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
		}
	}
}
