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

// replaying holds the flags of replay.
type replaying struct {
	selected          filter
	all               bool
	rate              replay.Rate
	dryRun, yes, wait bool
	alsoRecovered     bool
	timeout           time.Duration
	ids               []uint64
}

// ReplayCommand returns the command replay.
func ReplayCommand(o *cli.Options) *cobra.Command {
	r := &replaying{selected: filter{Options: o}}
	cmd := &cobra.Command{
		Use:   "replay [ID…]",
		Short: "Fetch failed keys again, if they are still wanted",
		Long: "Fetches failed keys again: those of the given failures, those that the filters select,\n" +
			"or --all. It skips keys that were fetched since, are no longer wanted or have changed, and\n" +
			"replays only the newest failure of a key. It is safe to run it at any time, and repeatedly.",
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: o.CompleteFailures,
	}
	cmd.RunE = o.Run(r.run)
	r.selected.bindFlags(cmd, r.validate)
	fs := cmd.Flags()
	fs.BoolVar(&r.all, "all", false, "replay all failures")
	fs.BoolVar(&r.alsoRecovered, "also-recovered", false, "replay keys that were fetched since, too")
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

func (r *replaying) run(ctx context.Context, s *cli.Session, _ []string) error {
	items, err := replay.Plan(ctx, s.Client, r.failures(ctx, s), r.alsoRecovered, nil)
	if err != nil {
		return err
	}
	out := &report{s: s, dryRun: r.dryRun, none: none(r.selected.parsed), items: items}
	n := replay.Count(items)[replay.Wanted]
	if r.dryRun || n == 0 {
		return out.print(false)
	}
	if !r.yes && n > cli.ConfirmAbove {
		if err := s.Confirm("Replay %s?", printer.Plural(n, "failure")); err != nil {
			return err
		}
	}
	return r.request(ctx, s, out)
}

// failures returns the selected failures.
func (r *replaying) failures(ctx context.Context, s *cli.Session) iter.Seq2[operate.DeadLetter, error] {
	if len(r.ids) == 0 {
		return s.Client.DeadLetters(ctx, r.selected.parsed)
	}
	return func(yield func(operate.DeadLetter, error) bool) {
		for _, id := range r.ids {
			if f, err := read(ctx, s, id); !yield(f, err) || err != nil {
				return
			}
		}
	}
}

// request requests the fetches and reports. The audit also records an interrupted replay.
func (r *replaying) request(ctx context.Context, s *cli.Session, out *report) (err error) {
	s.HintLoss()
	if r.wait {
		if out.follower, err = replay.Follow(ctx, s.Client); err != nil {
			return err
		}
	}
	n := replay.Count(out.items)[replay.Wanted]
	done := 0
	err = s.Audited(ctx, "replay", n, func(ctx context.Context) (_, _ int, err error) {
		bar := s.Aside.Bar("requested", n)
		err = replay.Request(ctx, s.Client, out.items, r.rate, func(done int) { bar.Set(done, "") })
		bar.End()
		done = replay.Count(out.items)[replay.Replayed]
		return done, len(out.items) - done, err
	})
	if done > 0 && err != nil {
		s.Hint("Stopped after %d of %s. It is safe to run it again.", done, printer.Plural(n, "replay"))
	}
	if err != nil && errors.Is(context.Cause(ctx), context.Canceled) {
		return cli.Errorf(cli.FailedAgain, "interrupted")
	}
	if err != nil {
		return err
	}
	s.HintPaused(ctx)
	if out.follower == nil {
		return out.print(false)
	}
	return r.follow(ctx, s, out)
}

func (r *replaying) follow(ctx context.Context, s *cli.Session, out *report) error {
	follower := out.follower
	waiting, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	n := 0
	for _, count := range replay.Outcomes(out.items) {
		n += count
	}
	bar := s.Aside.Bar("done", n)
	err := follower.Wait(waiting, out.items, func(counts map[replay.Outcome]int) {
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
	if pending := replay.Outcomes(out.items)[replay.Pending]; pending > 0 {
		s.Hint("Stopped waiting. %s continue without this command. `curlctl timers` lists scheduled ones.",
			printer.Plural(pending, "fetch"))
	}
	written := false
	if err == nil && replay.Outcomes(out.items)[replay.Fetched] > 0 {
		writing, cancel := context.WithTimeout(waiting, writerTimeout)
		defer cancel()
		if written, err = follower.Written(writing); err != nil {
			return err
		}
	}
	return out.print(written)
}
