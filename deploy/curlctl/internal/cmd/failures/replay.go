package failures

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/spf13/cobra"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/cli"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/replay"
	"github.com/kv8s/curl-me-that/deploy/curlctl/operate"
	"github.com/kv8s/curl-me-that/proto/annotation/duration"
)

// writerTimeout limits the wait for the writer after all fetches.
const writerTimeout = 30 * time.Second

// replaying is one run of the command replay, with its flags.
type replaying struct {
	selected          filter
	all               bool
	rate              replay.Rate
	dryRun, yes, wait bool
	alsoRecovered     bool
	timeout           time.Duration
	ids               []uint64

	*cli.Session
	items []*replay.Item
	// follower sets the outcomes (nil: without --wait).
	follower *replay.Follower
}

// ReplayCommand returns the command replay.
func ReplayCommand(o *cli.Options) *cobra.Command {
	r := &replaying{selected: filter{Options: o}}
	cmd := &cobra.Command{
		Use:   "replay [ID…]",
		Short: "Fetch failed keys again, if they are still wanted",
		Long: "Fetches the keys of failures again: of the given ones, of those that match the filters, or of\n" +
			"--all. It skips keys that were fetched since, are no longer wanted or have changed, and\n" +
			"replays only the newest failure of a key. It is safe to run at any time, and repeatedly.",
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: o.CompleteFailures,
	}
	cmd.RunE = o.Run(r.run)
	r.selected.bindFlags(cmd, r.validate)
	fs := cmd.Flags()
	fs.BoolVar(&r.all, "all", false, "replay all failures")
	fs.BoolVar(&r.alsoRecovered, "also-recovered", false, "also replay keys that were fetched since")
	fs.Var(&r.rate, "rate", replay.RateUsage)
	fs.BoolVar(&r.dryRun, "dry-run", false, "only print what would be replayed")
	fs.BoolVarP(&r.yes, "yes", "y", false, "skip the confirmation prompt")
	fs.BoolVar(&r.wait, "wait", false, "wait for the outcome of each fetch")
	r.timeout = 15 * time.Minute
	fs.Var((*duration.Flag)(&r.timeout), "timeout", "timeout of --wait")
	return cmd
}

func (r *replaying) validate(args []string) (err error) {
	if r.ids, err = cli.FailureIDs(args); err != nil {
		return err
	}
	filtered := r.selected.any()
	switch {
	case len(r.ids) == 0 && !filtered && !r.all:
		return cli.Usagef("replay needs IDs, filters such as --host, or --all")
	case len(r.ids) > 0 && (filtered || r.all):
		return cli.Usagef("replay takes either IDs or filters, not both")
	case r.all && r.selected.narrows():
		return cli.Usagef("replay takes either --all or filters such as --host, not both")
	case r.timeout <= 0:
		return cli.Usagef("--timeout must be positive")
	}
	return nil
}

func (r *replaying) run(ctx context.Context, s *cli.Session, _ []string) (err error) {
	r.Session = s
	if r.items, err = replay.Plan(ctx, r.Client, r.failures(ctx), r.alsoRecovered, nil); err != nil {
		return err
	}
	n := replay.Count(r.items)[replay.Wanted]
	if r.dryRun || n == 0 {
		return r.print(false)
	}
	if !r.yes && n > cli.ConfirmAbove {
		if err := r.Confirm("Replay %s?", printer.Plural(n, "failure")); err != nil {
			return err
		}
	}
	return r.request(ctx, n)
}

// failures returns the selected failures.
func (r *replaying) failures(ctx context.Context) iter.Seq2[operate.DeadLetter, error] {
	if len(r.ids) == 0 {
		return r.Client.DeadLetters(ctx, r.selected.parsed)
	}
	return func(yield func(operate.DeadLetter, error) bool) {
		for _, id := range r.ids {
			if f, err := read(ctx, r.Session, id); !yield(f, err) || err != nil {
				return
			}
		}
	}
}

// request requests n fetches and prints the result.
func (r *replaying) request(ctx context.Context, n int) (err error) {
	r.HintLoss()
	if r.wait {
		if r.follower, err = replay.Follow(ctx, r.Client); err != nil {
			return err
		}
	}
	bar := r.Aside.Bar("requested", n)
	err = replay.Request(ctx, r.Client, r.items, r.rate, func(done int) { bar.Set(done, "") })
	bar.End()
	if done := replay.Count(r.items)[replay.Replayed]; done > 0 && err != nil {
		r.Hint("Stopped after %d of %s. It is safe to run it again.", done, printer.Plural(n, "replay"))
	}
	if err != nil && errors.Is(context.Cause(ctx), context.Canceled) {
		return cli.Errorf(cli.FailedAgain, "interrupted")
	}
	if err != nil {
		return err
	}
	r.HintPaused(ctx)
	if r.follower == nil {
		return r.print(false)
	}
	return r.follow(ctx)
}

func (r *replaying) follow(ctx context.Context) error {
	waiting, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	n := 0
	for _, count := range replay.Outcomes(r.items) {
		n += count
	}
	bar := r.Aside.Bar("done", n)
	err := r.follower.Wait(waiting, r.items, func(counts map[replay.Outcome]int) {
		note := ""
		if failed := counts[replay.FailedAgain]; failed > 0 {
			note = printer.Grouped(failed) + " failed again"
		}
		bar.Set(n-counts[replay.Pending], note)
	})
	bar.End()
	if err != nil && waiting.Err() == nil {
		return err
	}
	if pending := replay.Outcomes(r.items)[replay.Pending]; pending > 0 {
		r.Hint("Stopped waiting for %s. Fetching continues. `curlctl timers` lists scheduled fetches.",
			printer.Plural(pending, "fetch"))
	}
	written := false
	if err == nil && replay.Outcomes(r.items)[replay.Fetched] > 0 {
		writing, cancel := context.WithTimeout(waiting, writerTimeout)
		defer cancel()
		if written, err = r.follower.Written(writing); err != nil {
			return err
		}
	}
	return r.print(written)
}
