// Package pipeline has the commands that act on the pipeline as a whole: pause, resume, setup and
// doctor.
package pipeline

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/cli"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
	"github.com/kv8s/curl-me-that/deploy/curlctl/operate"
	"github.com/kv8s/curl-me-that/proto/annotation/duration"
)

// PauseCommand returns the command pause.
func PauseCommand(o *cli.Options) *cobra.Command {
	limit := duration.Flag(0)
	cmd := &cobra.Command{
		Use:   "pause",
		Short: "Pause fetching without loss",
		Long: "Pauses the delivery of requests to all fetchers. Fetches in flight finish, new requests\n" +
			"and timers wait in the stream. `curlctl resume` ends the pause.",
		Args: cli.NoArgs,
	}
	cmd.PreRunE = func(*cobra.Command, []string) error { return cli.NotNegative("for", int(limit)) }
	cmd.RunE = o.Run(func(ctx context.Context, s *cli.Session, _ []string) error {
		return pause(ctx, s, time.Duration(limit))
	})
	cmd.Flags().Var(&limit, "for", "resume after this time (0: never)")
	return cmd
}

func pause(ctx context.Context, s *cli.Session, limit time.Duration) error {
	until := "until `curlctl resume`"
	if limit > 0 {
		until = "for " + duration.Format(limit)
	} else {
		limit = operate.Forever
	}
	err := s.Client.PauseFetching(ctx, time.Now().Add(limit))
	if err == nil {
		s.Out.Linef("Fetching is %s %s.", printer.In(printer.Yellow, "paused"), until)
	}
	return err
}

// ResumeCommand returns the command resume.
func ResumeCommand(o *cli.Options) *cobra.Command {
	return &cobra.Command{
		Use:   "resume",
		Short: "Resume fetching",
		Args:  cli.NoArgs,
		RunE: o.Run(func(ctx context.Context, s *cli.Session, _ []string) error {
			before, err := s.Client.Fetchers(ctx)
			if err != nil {
				return err
			}
			err = s.Client.ResumeFetching(ctx)
			switch {
			case err != nil:
			case before.Paused:
				s.Out.Linef("Fetching %s, %s waiting.",
					printer.In(printer.Green, "resumed"), printer.Plural(int(before.NumPending), "request"))
			default:
				s.Out.Linef("Fetching was not paused.")
			}
			return err
		}),
	}
}
