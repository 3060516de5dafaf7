package curlctl

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/overview"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
	"github.com/kv8s/curl-me-that/proto/annotation/duration"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

func pauseCommand(o *options) *cobra.Command {
	limit := duration.Flag(0)
	cmd := &cobra.Command{
		Use:   "pause",
		Short: "Stop fetching; nothing is lost",
		Long: "Stops the delivery of requests to all fetchers. What is in work ends, what comes\n" +
			"waits in the stream, timers fire into the backlog. `curlctl resume` ends the pause.",
		Args: noArgs,
	}
	cmd.RunE = func(c *cobra.Command, args []string) error {
		if limit < 0 {
			return usagef("--for must not be negative")
		}
		line := words(c.Flags(), nil)
		return o.run(func(ctx context.Context, s *session, _ []string) error {
			return s.pause(ctx, time.Duration(limit), line)
		})(c, args)
	}
	cmd.Flags().Var(&limit, "for", "go on by itself after so long; 0: after `curlctl resume`")
	return cmd
}

func (s *session) pause(ctx context.Context, limit time.Duration, line string) error {
	end, err := s.audit(ctx, "pause", line, 0)
	if err != nil {
		return err
	}
	until := time.Now().Add(overview.Forever)
	if limit > 0 {
		until = time.Now().Add(limit)
	}
	if err := s.Client.PauseFetching(ctx, until); err != nil {
		return err
	}
	if limit > 0 {
		s.out.Linef("Fetching is %s for %s.", printer.In(printer.Yellow, "paused"), duration.Format(limit))
	} else {
		s.out.Linef("Fetching is %s until `curlctl resume`.", printer.In(printer.Yellow, "paused"))
	}
	return end(ctx, 1, 0)
}

func resumeCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "resume",
		Short: "Let fetching go on",
		Args:  noArgs,
		RunE: o.run(func(ctx context.Context, s *session, _ []string) error {
			end, err := s.audit(ctx, "resume", "", 0)
			if err != nil {
				return err
			}
			if err := s.Client.ResumeFetching(ctx); err != nil {
				return err
			}
			consumer, err := s.JetStream.Consumer(ctx, pipeline.Requests, pipeline.FetcherConsumer)
			if err != nil {
				return err
			}
			s.out.Linef("Fetching goes %s; %s.", printer.In(printer.Green, "on"), printer.Plural(int(consumer.CachedInfo().NumPending), "request")+" waiting")
			return end(ctx, 1, 0)
		}),
	}
}
