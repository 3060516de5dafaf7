package failures

import (
	"cmp"
	"strings"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/cli"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/deadletter"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/replay"
)

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
	counts := replay.Count(r.items)
	r.skipped()
	switch {
	case len(r.items) == 0:
		out.Linef("%s", none(r.selected.parsed))
	case r.dryRun:
		out.Linef("Would replay %s.", share(counts[replay.Wanted], len(r.items), "failure"))
	case counts[replay.Replayed] == 0:
		out.Linef("Replayed none of %s.", printer.Plural(len(r.items), "failure"))
	default:
		out.Linef("Replayed %s.", share(counts[replay.Replayed], len(r.items), "failure"))
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
		case replay.Wanted, replay.Replayed, replay.Older, replay.Recovered, replay.Already:
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
	counts := replay.Count(r.items)
	for _, skipped := range []struct {
		verdict   replay.Verdict
		noun, why string
	}{
		{replay.Older, "older failure", "there is a newer one of the same key"},
		{replay.Recovered, "failure", "recovered (--also-recovered replays them, too)"},
		{replay.Already, "failure", "replayed less than two minutes ago"},
	} {
		if n := counts[skipped.verdict]; n > 0 {
			r.Out.Linef("Skipped %s: %s.", printer.Plural(n, skipped.noun), skipped.why)
		}
	}
}

func (r *replaying) outcomes(written bool) {
	r.outcome("Outcome", replay.Outcomes(r.items, replay.Replayed))
	r.outcome("Outcome of earlier replays", replay.Outcomes(r.items, replay.Already))
	out, counts := r.Out, replay.Outcomes(r.items)
	if counts[replay.Fetched] > 0 && written {
		out.Linef("The writer has handled all of them.")
	} else if counts[replay.Fetched] > 0 {
		out.Linef("The writer has not handled all of them yet, `curlctl status` shows its backlog.")
	}
	n := 0
	for _, item := range r.items {
		end := item.End
		if !item.Followed() || end.Outcome != replay.FailedAgain {
			continue
		}
		if n++; n > maxNamed {
			out.Linef("More failed again, `curlctl failures` lists them.")
			return
		}
		reason := deadletter.Reason(end.Failure.Reason, end.Failure.Message.GetFailure().GetStatusCode())
		out.Linef("Failed again: %s (%s), was failure %d, is failure %d.",
			item.Key, printer.In(printer.Red, reason), item.ID, end.Failure.ID)
	}
}

// outcome prints counts by outcome.
func (r *replaying) outcome(title string, counts map[replay.Outcome]int) {
	var parts []any
	for _, o := range []struct {
		outcome replay.Outcome
		colour  printer.Colour
		text    string
	}{
		{replay.Fetched, printer.Green, "fetched"},
		{replay.FailedAgain, printer.Red, "failed again"},
		{replay.Superseded, printer.Yellow, "changed meanwhile"},
		{replay.Pending, printer.Yellow, "pending"},
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
	counts := replay.Outcomes(r.items)
	if counts[replay.FailedAgain]+counts[replay.Pending] > 0 {
		return cli.Silent(cli.FailedAgain)
	}
	return nil
}

// rows prints each item for programs.
func (r *replaying) rows() error {
	_, err := r.Out.List(printer.Table{}, printer.Rows(r.items, func(item *replay.Item) printer.Row {
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
		return printer.Row{Name: deadletter.Name(item.ID), Object: row}
	}))
	return err
}
