package curlctl

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/time/rate"
	kubewait "k8s.io/apimachinery/pkg/util/wait"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/fault"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/keys"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/replay"
	"github.com/kv8s/curl-me-that/proto/duration"
)

// writerTimeout limits the wait for the writer after all fetches.
const writerTimeout = 30 * time.Second

// replaying is one run of the command replay, with its flags.
type replaying struct {
	selected          keys.Selection
	all               bool
	rate              fetchRate
	dryRun, yes, wait bool
	alsoRecovered     bool
	timeout           time.Duration

	*session
	items []*replay.Item
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
		ValidArgsFunction: o.completeFailures,
	}
	cmd.RunE = o.Run(withNATS, r.run)
	bindSelection(o, cmd, &r.selected, r.validate)
	fs := cmd.Flags()
	fs.BoolVar(&r.all, "all", false, "replay all failures")
	fs.BoolVar(&r.alsoRecovered, "also-recovered", false, "also replay keys that were fetched since")
	fs.Var(&r.rate, "rate", rateUsage)
	fs.BoolVar(&r.dryRun, "dry-run", false, "only print what would be replayed")
	fs.BoolVarP(&r.yes, "yes", "y", false, "skip the confirmation prompt")
	fs.BoolVar(&r.wait, "wait", false, "wait for the outcome of each fetch")
	r.timeout = 15 * time.Minute
	fs.Var((*duration.Flag)(&r.timeout), "timeout", "timeout of --wait")
	return cmd
}

func (r *replaying) validate(args []string) error {
	filters := r.selected
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
	r.items, err = replay.Failures{
		Namespace: r.selected.Namespace, AlsoRecovered: r.alsoRecovered, Retrying: r.all,
	}.Items(ctx, r.Client, r.selected.Failures(ctx, r.Client))
	if err != nil {
		return err
	}
	n := replay.Verdicts(r.items)[replay.StillWanted]
	if r.dryRun || n == 0 {
		r.print()
		return nil
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
	var follower *replay.Follower
	if r.wait {
		if follower, err = replay.Follow(ctx, r.Client); err != nil {
			return err
		}
	}
	if err = r.Publish(ctx, r.items, r.rate, n, "replay"); err != nil {
		return err
	}
	r.HintPaused(ctx)
	r.print()
	if !r.wait {
		return nil
	}
	return r.follow(ctx, follower)
}

// Publish requests the n wanted ones of the items. If it stops early, it prints a hint.
func (s *session) Publish(ctx context.Context, items []*replay.Item, limit fetchRate, n int, noun string) error {
	s.HintLoss()
	err := replay.Publish(ctx, s.Client, items, rate.Limit(limit), s.Stderr.Progress("requested", n))
	if done := replay.Verdicts(items)[replay.Replayed]; done > 0 && err != nil {
		s.Hint("Stopped after %d of %s. It is safe to run it again.", done, printer.Plural(n, noun))
	}
	return err
}

// follow waits for the outcomes and prints them.
func (r *replaying) follow(ctx context.Context, follower *replay.Follower) error {
	waiting, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	n := replay.Pending(r.items)
	progress := r.Stderr.Progress("done", n)
	err := follower.Wait(waiting, r.items, func(pending int) { progress(n - pending) })
	if err != nil && !kubewait.Interrupted(err) {
		return err
	}
	if pending := replay.Pending(r.items); pending > 0 {
		r.Hint("Stopped waiting for %s. Fetching continues. `curlctl failing` lists them.",
			printer.Plural(pending, "fetch"))
	}
	written := false
	if err == nil && replay.Verdicts(r.items)[replay.Fetched] > 0 {
		writing, cancel := context.WithTimeout(waiting, writerTimeout)
		defer cancel()
		if written, err = follower.Written(writing); err != nil && !kubewait.Interrupted(err) {
			return err
		}
	}
	return cmp.Or(r.outcomes(written), ctx.Err())
}

// maxNamed is the maximum number of failed items that are printed with their names.
const maxNamed = 20

// print prints the verdicts.
func (r *replaying) print() {
	counts := replay.Verdicts(r.items)
	for _, line := range replay.Skipped(counts) {
		r.Out.Linef("%s.", line)
	}
	switch {
	case len(r.items) == 0:
		r.Out.Linef("%s", noFailures(r.selected.DeadLetterFilter))
	case r.dryRun:
		r.Out.Linef("Would replay %s.", share(counts[replay.StillWanted], len(r.items)))
	default:
		r.Out.Linef("Replayed %s.", share(counts[replay.Replayed], len(r.items)))
	}
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

// outcomes prints the outcomes, and returns the exit code.
func (r *replaying) outcomes(written bool) error {
	counts, pending := replay.Verdicts(r.items), replay.Pending(r.items)
	var parts []string
	for _, outcome := range []replay.Verdict{replay.Fetched, replay.FailedAgain, replay.Superseded} {
		if n := counts[outcome]; n > 0 {
			parts = append(parts, printer.Grouped(n)+" "+string(outcome))
		}
	}
	if pending > 0 {
		parts = append(parts, printer.Grouped(pending)+" pending")
	}
	if len(parts) > 0 {
		r.Out.Linef("Outcome: %s.", strings.Join(parts, ", "))
	}
	if counts[replay.Fetched] > 0 && written {
		r.Out.Linef("The writer has handled all of them.")
	} else if counts[replay.Fetched] > 0 {
		r.Out.Linef("The writer has not handled all of them yet, `curlctl status` shows its backlog.")
	}
	n := 0
	for _, item := range r.items {
		if item.Verdict != replay.FailedAgain {
			continue
		}
		if n++; n > maxNamed {
			r.Out.Linef("More failed again, `curlctl failures` lists them.")
			break
		}
		reason := keys.Reason(item.NewFailure.Reason, item.NewFailure.Message.GetFailure().GetStatusCode())
		r.Out.Linef("Failed again: %s (%s), is failure %d.", item.Key, reason, item.NewFailure.ID)
	}
	if counts[replay.FailedAgain]+pending > 0 {
		return silent(fault.FailedAgain)
	}
	return nil
}

// refetchRate is the default of --rate, per second.
const refetchRate = 50

// refetching holds the flags of refetch.
type refetching struct {
	replay.Refetch

	rate     fetchRate
	all, yes bool
}

// refetchCommand returns the command refetch.
func refetchCommand(o *options) *cobra.Command {
	r := &refetching{rate: refetchRate}
	cmd := &cobra.Command{
		Use:   "refetch NAMESPACE/NAME | --all | --host HOST | --url PREFIX",
		Short: "Fetch wanted keys now, whether or not they failed",
		Long: "Fetches the keys of a ConfigMap, of a host or with a URL prefix, or --all keys. --namespace\n" +
			"limits the selection. Unchanged bodies are not written. A host that asked for a pause gets\n" +
			"one fetch at a time per namespace. A good response ends the pause, and the other fetches\n" +
			"follow.",
		Args:              takes(0, 1),
		ValidArgsFunction: o.completeObjects,
	}
	cmd.PreRunE = func(_ *cobra.Command, args []string) (err error) {
		r.Namespace = o.Namespace
		switch {
		case len(args) == 0 && !r.all && r.Host == "" && r.URL == "" || len(args) == 1 && r.all:
			return usagef("refetch needs NAMESPACE/NAME, --host, --url or --all")
		case strings.ContainsAny(r.URL, "?@"):
			return usagef("--url must not have credentials or a query")
		case len(args) == 1:
			r.Namespace, r.Name, err = o.ParseObject(args[0])
		}
		return err
	}
	cmd.RunE = o.Run(withNATS, r.run)
	cmd.Flags().StringVar(&r.Host, "host", "", "fetch keys from this host")
	cmd.Flags().StringVar(&r.URL, "url", "", "fetch keys whose URL begins with this one, such as https://example.com/v1/")
	cmd.Flags().BoolVar(&r.all, "all", false, "fetch all keys, or all of --namespace")
	cmd.Flags().BoolVarP(&r.yes, "yes", "y", false, "skip the confirmation prompt")
	cmd.Flags().Var(&r.rate, "rate", rateUsage)
	return cmd
}

func (r *refetching) run(ctx context.Context, s *session, _ []string) error {
	selected, err := r.Items(ctx, s.Client)
	switch {
	case err != nil:
		return err
	case len(selected) == 0 && r.Name != "":
		return errorf(fault.NotFound, "no keys are wanted for %s/%s: not found", r.Namespace, r.Name)
	case len(selected) == 0 && !r.all:
		return errorf(fault.NotFound, "no wanted key has this host and URL: not found")
	}
	if !r.yes && len(selected) > confirmAbove {
		if err := s.Confirm("Fetch %s now?", printer.Plural(len(selected), "key")); err != nil {
			return err
		}
	}
	if err = s.Publish(ctx, selected, r.rate, len(selected), "fetch"); err == nil {
		done := replay.Verdicts(selected)
		s.Out.Linef("Requested %s.", printer.Plural(done[replay.Replayed]+done[replay.Already], "fetch"))
		s.HintPaused(ctx)
	}
	return err
}

// rateUsage is the help of --rate.
const rateUsage = "rate limit of the fetches, such as 20/s, 600/m or 1000/h (0: no limit)"

// fetchRate is the value of --rate: fetches per second (0: no limit).
type fetchRate rate.Limit

// Set implements pflag.Value.
func (f *fetchRate) Set(text string) error {
	number, unit, found := strings.Cut(text, "/")
	if !found {
		unit = "s"
	}
	seconds := map[string]float64{"s": 1, "m": 60, "h": 3600}[unit]
	n, err := strconv.ParseFloat(number, 64)
	if err != nil || seconds == 0 || n < 0 || math.IsNaN(n) || math.IsInf(n, 0) {
		return fmt.Errorf("%q is not a rate such as 20/s or 600/m", text)
	}
	*f = fetchRate(n / seconds)
	return nil
}

// String implements pflag.Value.
func (f *fetchRate) String() string {
	if *f == 0 {
		return "0"
	}
	return strconv.FormatFloat(float64(*f), 'g', -1, 64) + "/s"
}

// Type implements pflag.Value.
func (f *fetchRate) Type() string { return "rate" }
