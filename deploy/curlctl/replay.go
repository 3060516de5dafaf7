package curlctl

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/keys"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
	"github.com/kv8s/curl-me-that/deploy/curlctl/operate"
	"github.com/kv8s/curl-me-that/proto/annotation/duration"
)

// writerTimeout limits the wait for the writer after all fetches.
const writerTimeout = 30 * time.Second

// replaying is one run of the command replay, with its flags.
type replaying struct {
	selected          failureFilter
	all               bool
	rate              keys.Rate
	dryRun, yes, wait bool
	alsoRecovered     bool
	timeout           time.Duration
	ids               []uint64

	*session
	items []*keys.Item
	// follower sets the outcomes (nil: without --wait).
	follower *keys.Follower
}

// replayCommand returns the command keys.
func replayCommand(o *options) *cobra.Command {
	r := &replaying{selected: failureFilter{options: o}}
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
	fs.Var(&r.rate, "rate", keys.RateUsage)
	fs.BoolVar(&r.dryRun, "dry-run", false, "only print what would be replayed")
	fs.BoolVarP(&r.yes, "yes", "y", false, "skip the confirmation prompt")
	fs.BoolVar(&r.wait, "wait", false, "wait for the outcome of each fetch")
	r.timeout = 15 * time.Minute
	fs.Var((*duration.Flag)(&r.timeout), "timeout", "timeout of --wait")
	return cmd
}

func (r *replaying) validate(args []string) (err error) {
	if r.ids, err = failureIDs(args); err != nil {
		return err
	}
	filtered := r.selected.any()
	switch {
	case len(r.ids) == 0 && !filtered && !r.all:
		return usagef("replay needs IDs, filters such as --host, or --all")
	case len(r.ids) > 0 && (filtered || r.all):
		return usagef("replay takes either IDs or filters, not both")
	case r.all && r.selected.narrows():
		return usagef("replay takes either --all or filters such as --host, not both")
	case r.timeout <= 0:
		return usagef("--timeout must be positive")
	}
	return nil
}

func (r *replaying) run(ctx context.Context, s *session, _ []string) (err error) {
	r.session = s
	if r.items, err = keys.PlanReplay(ctx, r.Client, r.failures(ctx), r.alsoRecovered, nil); err != nil {
		return err
	}
	n := keys.Verdicts(r.items)[keys.Wanted]
	if r.dryRun || n == 0 {
		return r.print(false)
	}
	if !r.yes && n > confirmAbove {
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
			if f, err := readFailure(ctx, r.session, id); !yield(f, err) || err != nil {
				return
			}
		}
	}
}

// request requests n fetches and prints the result.
func (r *replaying) request(ctx context.Context, n int) (err error) {
	r.HintLoss()
	if r.wait {
		if r.follower, err = keys.Follow(ctx, r.Client); err != nil {
			return err
		}
	}
	bar := r.Aside.Bar("requested", n)
	err = keys.Replay(ctx, r.Client, r.items, r.rate, func(done int) { bar.Set(done, "") })
	bar.End()
	if done := keys.Verdicts(r.items)[keys.Replayed]; done > 0 && err != nil {
		r.Hint("Stopped after %d of %s. It is safe to run it again.", done, printer.Plural(n, "replay"))
	}
	if err != nil && errors.Is(context.Cause(ctx), context.Canceled) {
		return errorf(exitFailedAgain, "interrupted")
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
	for _, count := range keys.Outcomes(r.items) {
		n += count
	}
	bar := r.Aside.Bar("done", n)
	err := r.follower.Wait(waiting, r.items, func(counts map[keys.Outcome]int) {
		note := ""
		if failed := counts[keys.FailedAgain]; failed > 0 {
			note = printer.Grouped(failed) + " failed again"
		}
		bar.Set(n-counts[keys.Pending], note)
	})
	bar.End()
	if err != nil && waiting.Err() == nil {
		return err
	}
	if pending := keys.Outcomes(r.items)[keys.Pending]; pending > 0 {
		r.Hint("Stopped waiting for %s. Fetching continues. `curlctl timers` lists scheduled fetches.",
			printer.Plural(pending, "fetch"))
	}
	written := false
	if err == nil && keys.Outcomes(r.items)[keys.Fetched] > 0 {
		writing, cancel := context.WithTimeout(waiting, writerTimeout)
		defer cancel()
		if written, err = r.follower.Written(writing); err != nil {
			return err
		}
	}
	return r.print(written)
}

// replayed is one item in JSON and YAML output.
type replayed struct {
	ID        uint64 `json:"id"`
	Namespace string `json:"namespace"`
	ConfigMap string `json:"configMap"`
	Key       string `json:"key"`
	Verdict   string `json:"verdict"`
	Outcome   string `json:"outcome,omitempty"`
	Reason    string `json:"reason,omitempty"`
}

// maxNamed is the maximum number of skipped items, and of failed ones, that are printed with their names.
const maxNamed = 20

// print prints the verdicts, and with a follower the outcomes. It returns the exit code.
func (r *replaying) print(written bool) error {
	out := r.Out
	if out.ForPrograms() {
		return cmp.Or(r.rows(), r.code())
	}
	counts := keys.Verdicts(r.items)
	r.skipped()
	switch {
	case len(r.items) == 0:
		out.Linef("%s", noFailures(r.selected.parsed))
	case r.dryRun:
		out.Linef("Would replay %s.", share(counts[keys.Wanted], len(r.items), "failure"))
	case counts[keys.Replayed] == 0:
		out.Linef("Replayed none of %s.", printer.Plural(len(r.items), "failure"))
	default:
		out.Linef("Replayed %s.", share(counts[keys.Replayed], len(r.items), "failure"))
	}
	if r.follower != nil {
		r.outcomes(written)
	}
	return r.code()
}

// share returns "97 of 100 failures", or "100 failures" if that is all.
func share(n, all int, noun string) string {
	if n == all {
		return printer.Plural(n, noun)
	}
	return printer.Grouped(n) + " of " + printer.Plural(all, noun)
}

// skipped prints the skipped items.
func (r *replaying) skipped() {
	n := 0
	for _, item := range r.items {
		switch item.Verdict {
		case keys.Wanted, keys.Replayed, keys.Older, keys.Recovered, keys.Already:
			continue
		default:
		}
		if n++; n <= maxNamed {
			r.Out.Linef("Skipped %d (%s): %s.", item.ID, item.Key, printer.In(printer.Yellow, string(item.Verdict)))
		}
	}
	if n > maxNamed {
		r.Out.Linef("Skipped %s more, -o json lists all.", printer.Grouped(n-maxNamed))
	}
	counts := keys.Verdicts(r.items)
	for _, skipped := range []struct {
		verdict   keys.Verdict
		noun, why string
	}{
		{keys.Older, "older failure", "there is a newer one of the same key"},
		{keys.Recovered, "failure", "recovered (--also-recovered replays them, too)"},
		{keys.Already, "failure", "replayed less than two minutes ago"},
	} {
		if n := counts[skipped.verdict]; n > 0 {
			r.Out.Linef("Skipped %s: %s.", printer.Plural(n, skipped.noun), skipped.why)
		}
	}
}

func (r *replaying) outcomes(written bool) {
	r.outcome("Outcome", keys.Outcomes(r.items, keys.Replayed))
	r.outcome("Outcome of earlier replays", keys.Outcomes(r.items, keys.Already))
	out, counts := r.Out, keys.Outcomes(r.items)
	if counts[keys.Fetched] > 0 && written {
		out.Linef("The writer has handled all of them.")
	} else if counts[keys.Fetched] > 0 {
		out.Linef("The writer has not handled all of them yet, `curlctl status` shows its backlog.")
	}
	n := 0
	for _, item := range r.items {
		end := item.End
		if !item.Followed() || end.Outcome != keys.FailedAgain {
			continue
		}
		if n++; n > maxNamed {
			out.Linef("More failed again, `curlctl failures` lists them.")
			return
		}
		reason := keys.Reason(end.Failure.Reason, end.Failure.Message.GetFailure().GetStatusCode())
		out.Linef("Failed again: %s (%s), was failure %d, is failure %d.",
			item.Key, printer.In(printer.Red, reason), item.ID, end.Failure.ID)
	}
}

// outcome prints counts by outcome.
func (r *replaying) outcome(title string, counts map[keys.Outcome]int) {
	var parts []any
	for _, o := range []struct {
		outcome keys.Outcome
		colour  printer.Colour
		text    string
	}{
		{keys.Fetched, printer.Green, "fetched"},
		{keys.FailedAgain, printer.Red, "failed again"},
		{keys.Superseded, printer.Yellow, "changed meanwhile"},
		{keys.Pending, printer.Yellow, "pending"},
	} {
		if n := counts[o.outcome]; n > 0 {
			parts = append(parts, printer.In(o.colour, printer.Grouped(n)+" "+o.text))
		}
	}
	if len(parts) > 0 {
		r.Out.Linef(title+": %s"+strings.Repeat(", %s", len(parts)-1)+".", parts...)
	}
}

// code returns the exit code.
func (r *replaying) code() error {
	if r.follower == nil {
		return nil
	}
	counts := keys.Outcomes(r.items)
	if counts[keys.FailedAgain]+counts[keys.Pending] > 0 {
		return silent(exitFailedAgain)
	}
	return nil
}

// rows prints each item for programs.
func (r *replaying) rows() error {
	_, err := r.Out.List(printer.Table{}, printer.Rows(r.items, func(item *keys.Item) printer.Row {
		row := replayed{
			ID: item.ID, Namespace: item.Key.Namespace, ConfigMap: item.Key.Name, Key: item.Key.Key,
			Verdict: string(item.Verdict),
		}
		if r.follower != nil && item.Followed() {
			row.Outcome = string(item.End.Outcome)
			if item.End.Failure != nil {
				row.Reason = item.End.Failure.Reason
			}
		}
		return printer.Row{Name: keys.Name(item.ID), Object: row}
	}))
	return err
}
