package curlctl

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/keys"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
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

	*session
	items []*keys.Item
	// follower sets the outcomes (nil: without --wait).
	follower *keys.Follower
}

// replayCommand returns the command replay.
func replayCommand(o *options) *cobra.Command {
	r := &replaying{}
	cmd := &cobra.Command{
		Use:   "replay [ID…]",
		Short: "Fetch failed keys again, if they are still wanted",
		Long: "Fetches the keys of failures again: of the given ones, of those that match the filters, or of\n" +
			"--all, which includes keys between two retries. It skips keys that were fetched since, are no\n" +
			"longer wanted or have changed, and " +
			"replays only the newest failure of a key. It is safe to run at any time, and repeatedly.",
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: o.CompleteFailures,
	}
	cmd.RunE = o.Run(r.run)
	r.selected.bindFlags(o, cmd, r.validate)
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

func (r *replaying) validate(args []string) error {
	filters := r.selected.Selection
	filters.IDs = nil
	if err := r.selected.SetIDs(args); err != nil {
		return usagef("%w", err)
	}
	filtered := len(filters.Words()) > 0
	filters.Namespace = ""
	switch {
	case len(args) == 0 && !filtered && !r.all:
		return usagef("replay needs IDs, filters such as --host, or --all")
	case len(args) > 0 && (filtered || r.all):
		return usagef("replay takes either IDs or filters, not both")
	case r.all && len(filters.Words()) > 0:
		return usagef("replay takes either --all or filters such as --host, not both")
	case r.timeout <= 0:
		return usagef("--timeout must be positive")
	}
	return nil
}

func (r *replaying) run(ctx context.Context, s *session, _ []string) (err error) {
	r.session = s
	if r.items, err = keys.PlanReplay(ctx, r.Client,
		keys.Failures(ctx, r.Client, r.selected.IDs, r.selected.parsed), r.alsoRecovered); err != nil {
		return err
	}
	if r.all { // a key between two retries fails without a failure in the record
		if r.items, err = keys.Retrying(ctx, r.Client, r.selected.Namespace, r.items); err != nil {
			return err
		}
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

// request requests n fetches and prints the result.
func (r *replaying) request(ctx context.Context, n int) (err error) {
	r.HintLoss()
	if r.wait {
		if r.follower, err = keys.Follow(ctx, r.Client); err != nil {
			return err
		}
	}
	err = keys.Replay(ctx, r.Client, r.items, r.rate, r.Aside.Progress("requested", n))
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
	progress := r.Aside.Progress("done", n)
	err := r.follower.Wait(waiting, r.items, func(counts map[keys.Outcome]int) { progress(n - counts[keys.Pending]) })
	if err != nil && waiting.Err() == nil {
		return err
	}
	if pending := keys.Outcomes(r.items)[keys.Pending]; pending > 0 {
		r.Hint("Stopped waiting for %s. Fetching continues. `curlctl failing` lists them.",
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

// maxNamed is the maximum number of failed items that are printed with their names.
const maxNamed = 20

// print prints the verdicts, and with a follower the outcomes. It returns the exit code.
func (r *replaying) print(written bool) error {
	counts := keys.Verdicts(r.items)
	for _, line := range keys.Skipped(counts) {
		r.Out.Linef("%s.", line)
	}
	switch {
	case len(r.items) == 0:
		r.Out.Linef("%s", noFailures(r.selected.parsed))
	case r.dryRun:
		r.Out.Linef("Would replay %s.", share(counts[keys.Wanted], len(r.items)))
	default:
		r.Out.Linef("Replayed %s.", share(counts[keys.Replayed], len(r.items)))
	}
	if r.follower != nil {
		r.outcomes(written)
	}
	return r.code()
}

// share returns "97 of 100 failures", or "100 failures" if that is all.
func share(n, all int) string {
	switch n {
	case all:
		return printer.Plural(n, "failure")
	case 0:
		return "none of " + printer.Plural(all, "failure")
	}
	return printer.Grouped(n) + " of " + printer.Plural(all, "failure")
}

func (r *replaying) outcomes(written bool) {
	counts := keys.Outcomes(r.items)
	var parts []string
	for _, outcome := range []keys.Outcome{keys.Fetched, keys.FailedAgain, keys.Superseded, keys.Pending} {
		if n := counts[outcome]; n > 0 {
			parts = append(parts, printer.Grouped(n)+" "+string(outcome))
		}
	}
	if len(parts) > 0 {
		r.Out.Linef("Outcome: %s.", strings.Join(parts, ", "))
	}
	if counts[keys.Fetched] > 0 && written {
		r.Out.Linef("The writer has handled all of them.")
	} else if counts[keys.Fetched] > 0 {
		r.Out.Linef("The writer has not handled all of them yet, `curlctl status` shows its backlog.")
	}
	n := 0
	for _, item := range r.items {
		end := item.End
		if !item.Followed() || end.Outcome != keys.FailedAgain {
			continue
		}
		if n++; n > maxNamed {
			r.Out.Linef("More failed again, `curlctl failures` lists them.")
			return
		}
		reason := keys.Reason(end.Failure.Reason, end.Failure.Message.GetFailure().GetStatusCode())
		r.Out.Linef("Failed again: %s (%s), is failure %d.", item.Key, reason, end.Failure.ID)
	}
}

// code returns the exit code.
func (r *replaying) code() error {
	counts := keys.Outcomes(r.items)
	if r.follower != nil && counts[keys.FailedAgain]+counts[keys.Pending] > 0 {
		return silent(exitFailedAgain)
	}
	return nil
}
