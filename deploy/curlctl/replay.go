package curlctl

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/spf13/cobra"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/overview"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/readable"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/replay"
	"github.com/kv8s/curl-me-that/proto/annotation/duration"
	"github.com/kv8s/curl-me-that/proto/pipeline/operate"
)

// askAbove is how many fetches are asked for without asking back.
const askAbove = 100

// writerTimeout bounds the wait for the writer once all is fetched.
const writerTimeout = 30 * time.Second

// replaying holds the flags of replay.
type replaying struct {
	selected deadLetterFilter
	all      bool
	pace     replay.Pace
	dryRun   bool
	yes      bool
	wait     bool
	timeout  time.Duration
	filter   string
	ids      []uint64
}

func replayCommand(o *options) *cobra.Command {
	r := &replaying{selected: deadLetterFilter{options: o}}
	cmd := &cobra.Command{
		Use:   "replay [ID…]",
		Short: "Ask again for what has failed, if it is still wanted",
		Long: "Asks for the fetches of failures again: those with the IDs, those that the filters\n" +
			"select, or --all. Each is checked against what is wanted now; what is gone or has\n" +
			"changed is skipped. Of several failures of a key only the newest is replayed. It may\n" +
			"be run at any time, twice, and while the fetchers work.",
		Args: cobra.ArbitraryArgs,
	}
	cmd.ValidArgsFunction = o.completeFailures
	cmd.RunE = func(c *cobra.Command, args []string) error {
		var err error
		if r.ids, err = failureIDs(args); err != nil {
			return err
		}
		if err := r.validate(); err != nil {
			return err
		}
		r.filter = words(c.Flags(), args)
		return o.run(r.run)(c, args)
	}
	r.selected.bindFlags(cmd)
	fs := cmd.Flags()
	fs.BoolVar(&r.all, "all", false, "replay all failures that are kept")
	fs.Var((*duration.Flag)(&r.pace.Over), "over", "spread the fetches over so long, by timers in NATS")
	fs.Var((*replay.Rate)(&r.pace.Rate), "rate", replay.RateUsage)
	fs.BoolVar(&r.dryRun, "dry-run", false, "only print what would be done")
	fs.BoolVarP(&r.yes, "yes", "y", false, "do not ask back, however many there are")
	fs.BoolVar(&r.wait, "wait", false, "wait until the outcome of each is known")
	r.timeout = 15 * time.Minute
	fs.Var((*duration.Flag)(&r.timeout), "timeout", "how long to wait, beside --over")
	return cmd
}

func (r *replaying) validate() error {
	filtered := r.selected.any()
	switch {
	case len(r.ids) == 0 && !filtered && !r.all:
		return usagef("replay needs IDs, filters such as --host, or --all")
	case len(r.ids) > 0 && (filtered || r.all):
		return usagef("replay takes either IDs or filters, not both")
	case r.pace.Over < 0 || r.pace.Rate < 0 || r.timeout <= 0:
		return usagef("--over and --rate must not be negative, and --timeout must be positive")
	}
	return nil
}

func (r *replaying) run(ctx context.Context, s *session, _ []string) error {
	filter, err := r.selected.filter(s.now())
	if err != nil {
		return err
	}
	items, err := r.plan(ctx, s, filter)
	if err != nil {
		return err
	}
	out := &report{s: s, r: r, items: items}
	n := replay.Count(items)[replay.Wanted]
	if r.dryRun || n == 0 {
		return out.print(nil, false)
	}
	if !r.yes && n > askAbove {
		if err := s.confirm("Replay %s?", printer.Plural(n, "failure")); err != nil {
			return err
		}
	}
	return r.request(ctx, s, items, out)
}

func (r *replaying) plan(ctx context.Context, s *session, filter operate.DeadLetterFilter) ([]*replay.Item, error) {
	var failures iter.Seq2[operate.DeadLetter, error]
	if len(r.ids) > 0 {
		failures = func(yield func(operate.DeadLetter, error) bool) {
			for _, id := range r.ids {
				if f, err := s.failure(ctx, id); !yield(f, err) || err != nil {
					return
				}
			}
		}
	} else {
		failures = readable.Only(&s.unread, s.Client.DeadLetters(ctx, filter))
	}
	return replay.Plan(ctx, s.Client, failures, nil)
}

// request publishes, follows if that is wanted, and reports. The audit records what
// was done even when that is broken off.
func (r *replaying) request(ctx context.Context, s *session, items []*replay.Item, report *report) (err error) {
	s.hintLoss()
	var follower *replay.Follower
	if r.wait {
		if follower, err = replay.Follow(ctx, s.Client, items); err != nil {
			return err
		}
		defer follower.Close()
	}
	n := replay.Count(items)[replay.Wanted]
	end, err := s.audit(ctx, "replay", r.filter, n)
	if err != nil {
		return err
	}
	bar := s.aside.Bar("asked", n)
	asked := replay.Request(ctx, s.Client, items, r.pace, func(done int) { bar.Set(done, "") })
	bar.End()
	counts := replay.Count(items)
	done := counts[replay.Replayed]
	if err := end(ctx, done, len(items)-done); err != nil && asked == nil {
		asked = err
	}
	if asked != nil {
		if done > 0 {
			s.hint("Broken off after %s; running it again is safe.", printer.Plural(done, "replay"))
		}
		if errors.Is(asked, context.Canceled) {
			return exitf(exitFailedAgain, "interrupted")
		}
		return asked
	}
	if follower == nil {
		return report.print(nil, false)
	}
	return r.follow(ctx, s, items, follower, report)
}

func (r *replaying) follow(ctx context.Context, s *session, items []*replay.Item, follower *replay.Follower, report *report) error {
	waiting, cancel := context.WithTimeout(ctx, r.timeout+r.pace.Over)
	defer cancel()
	s.warnPaused(ctx)
	n := 0
	for _, count := range follower.Count(items) {
		n += count
	}
	bar := s.aside.Bar("done", n)
	err := follower.Wait(waiting, items, func(counts map[replay.Outcome]int) {
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
	written := false
	if err == nil && follower.Count(items)[replay.Fetched] > 0 {
		writing, cancel := context.WithTimeout(waiting, writerTimeout)
		defer cancel()
		if written, err = follower.Written(writing); err != nil {
			return err
		}
	}
	return report.print(follower, written)
}

// warnPaused prints a hint when nothing will be fetched.
func (s *session) warnPaused(ctx context.Context) {
	if info, err := overview.Fetchers(ctx, s.JetStream); err == nil && info.Paused {
		s.hint("Fetching is paused: nothing is fetched before `curlctl resume`.")
	}
}
