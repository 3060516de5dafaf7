package curlctl

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/fault"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// setupCommand returns the command setup.
func setupCommand(o *options) *cobra.Command {
	var topology pipeline.Topology
	dryRun, watch := false, false
	cmd := &cobra.Command{
		Use:   "setup",
		Short: "Create or update the streams and consumers",
		Long: "Creates or updates the streams and consumers. With --watch it runs until interrupted and\n" +
			"creates what is missing, so that a NATS server that lost its data recovers. It does not\n" +
			"change existing streams then.",
		Args: noArgs,
		PreRunE: func(*cobra.Command, []string) error {
			if dryRun && watch {
				return usagef("give either --dry-run or --watch")
			}
			if err := topology.Validate(); err != nil {
				return usagef("%w", err)
			}
			return nil
		},
		RunE: o.Run(withNATS, func(ctx context.Context, s *session, _ []string) error {
			if watch {
				return createMissing(ctx, s, topology)
			}
			return setup(ctx, s, topology, dryRun)
		}),
	}
	fs := cmd.Flags()
	fs.BoolVar(&dryRun, "dry-run", false, "only compare, and exit with 7 if something differs")
	fs.BoolVar(&watch, "watch", false, "keep running, and create missing streams and consumers")
	topology.BindFlags(fs, "replicas")
	return cmd
}

func setup(ctx context.Context, s *session, topology pipeline.Topology, dryRun bool) error {
	differ, err := pipeline.Differences(ctx, s.Client.JetStream(), topology)
	if err != nil {
		return err
	}
	for _, d := range differ {
		s.Out.Linef("differs: %s", d)
	}
	if len(differ) == 0 {
		s.Out.Linef("Streams and consumers are up to date.")
		return nil
	}
	if dryRun {
		return silent(fault.ProblemFound)
	}
	topology.OnHistoryRejected = noHistory(s)
	if _, err := pipeline.Ensure(ctx, s.Client.JetStream(), topology); err != nil {
		return err
	}
	s.Out.Linef("Updated streams and consumers.")
	return nil
}

// noHistory returns a function that says once why the history was not set up.
func noHistory(s *session) func(error) {
	var once sync.Once
	return func(err error) {
		once.Do(func() { s.Hint("The history was not set up, give --history-bytes that fit, or 0: %v", err) })
	}
}

const (
	// checkEvery is the interval between checks for missing streams, and checkTimeout limits each check.
	checkEvery   = 2 * time.Second
	checkTimeout = 30 * time.Second
)

// createMissing creates missing streams and consumers until ctx ends. It reports only the first of consecutive
// failures.
func createMissing(ctx context.Context, s *session, topology pipeline.Topology) error {
	topology.KeepExisting, topology.OnHistoryRejected = true, noHistory(s)
	s.Hint("Creating missing streams and consumers at %s, press Ctrl-C to stop.", s.Where)
	failing := false
	_ = wait.PollUntilContextCancel(ctx, checkEvery, true, func(ctx context.Context) (bool, error) { // ends with ctx
		limited, cancel := context.WithTimeout(ctx, checkTimeout)
		defer cancel()
		_, err := pipeline.Ensure(limited, s.Client.JetStream(), topology)
		switch {
		case ctx.Err() != nil:
			return false, ctx.Err()
		case err != nil && !failing:
			s.Hint("Some streams or consumers are missing, retrying: %v", err)
		case err == nil && failing:
			s.Hint("All streams and consumers exist.")
		}
		failing = err != nil
		return false, nil
	})
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil // the user ended it
}
