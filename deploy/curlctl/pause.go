package curlctl

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/kv8s/curl-me-that/deploy/curlctl/broker"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
	"github.com/kv8s/curl-me-that/proto/duration"
)

// pauseCommand returns the command pause.
func pauseCommand(o *options) *cobra.Command {
	limit := duration.Flag(0)
	cmd := &cobra.Command{
		Use:   "pause",
		Short: "Pause fetching without loss",
		Long: "Pauses the delivery of requests to all fetchers. Fetches in flight finish, new requests\n" +
			"and timers wait in the stream. `curlctl resume` ends the pause.",
		Args: noArgs,
	}
	cmd.PreRunE = func(*cobra.Command, []string) error { return notNegative("for", int(limit)) }
	cmd.RunE = o.Run(withNATS, func(ctx context.Context, s *session, _ []string) error {
		until, length := "until `curlctl resume`", broker.Forever
		if limit > 0 {
			until, length = "for "+duration.Format(time.Duration(limit)), time.Duration(limit)
		}
		err := s.Client.PauseFetching(ctx, time.Now().Add(length))
		if err == nil {
			s.Out.Linef("Fetching is paused %s.", until)
		}
		return err
	})
	cmd.Flags().Var(&limit, "for", "resume after this time (0: never)")
	return cmd
}

// resumeCommand returns the command resume.
func resumeCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "resume",
		Short: "Resume fetching",
		Args:  noArgs,
		RunE: o.Run(withNATS, func(ctx context.Context, s *session, _ []string) error {
			before, err := s.Client.Fetchers(ctx)
			if err != nil {
				return err
			}
			err = s.Client.ResumeFetching(ctx)
			switch {
			case err != nil:
			case before.Paused:
				s.Out.Linef("Fetching resumed, %s waiting.", printer.Plural(before.NumPending, "request"))
			default:
				s.Out.Linef("Fetching was not paused.")
			}
			return err
		}),
	}
}
