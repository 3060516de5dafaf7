package curlctl

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

func setupCommand(o *options) *cobra.Command {
	var topology pipeline.Topology
	dryRun := false
	cmd := &cobra.Command{
		Use:   "setup",
		Short: "Create the streams and consumers, or bring them up to date",
		Args:  noArgs,
		RunE: o.run(func(ctx context.Context, s *session, _ []string) error {
			differ, err := pipeline.Compare(ctx, s.JetStream, topology)
			if err != nil {
				return err
			}
			for _, d := range differ {
				s.out.Linef("%s %s", s.out.Paint(printer.Yellow, "differs:"), d)
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
	fs.IntVar(&topology.Replicas, "replicas", 0, "replicas of each stream: 1, 3 or 5; 0: as they are")
	return cmd
}
