package curlctl

import (
	"strings"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/deadletter"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/replay"
	"github.com/kv8s/curl-me-that/proto/annotation/duration"
)

// report prints how a replay ended.
type report struct {
	s     *session
	r     *replaying
	items []*replay.Item
}

// replayed is one item as programs read it.
type replayed struct {
	ID        uint64 `json:"id"`
	Namespace string `json:"namespace"`
	ConfigMap string `json:"configMap"`
	Key       string `json:"key"`
	Verdict   string `json:"verdict"`
	Outcome   string `json:"outcome,omitempty"`
	Reason    string `json:"reason,omitempty"`
}

// shownItems is how many skipped or failed items are named to people.
const shownItems = 20

// print reports; without a follower the outcomes are not known. The error is
// the exit code when not all ended well.
func (p *report) print(follower *replay.Follower, written bool) error {
	if p.s.out.ForPrograms() {
		if err := p.rows(follower); err != nil {
			return err
		}
		return p.code(follower)
	}
	counts := replay.Count(p.items)
	p.skipped()
	switch {
	case len(p.items) == 0:
		p.s.out.Linef("No failures found.")
	case p.r.dryRun:
		p.s.out.Linef("Would replay %s%s.", of(counts[replay.Wanted], len(p.items), "failure"), p.how())
	case counts[replay.Replayed] == 0:
		p.s.out.Linef("Replayed nothing of %s.", printer.Plural(len(p.items), "failure"))
	default:
		p.s.out.Linef("Replayed %s%s.", of(counts[replay.Replayed], len(p.items), "failure"), p.how())
	}
	if follower == nil {
		return nil
	}
	p.outcomes(follower, written)
	return p.code(follower)
}

// of returns "97 of 100 failures", or "100 failures" when it is all.
func of(n, all int, noun string) string {
	if n == all {
		return printer.Plural(n, noun)
	}
	return printer.Grouped(n) + " of " + printer.Plural(all, noun)
}

func (p *report) how() string {
	if p.r.pace.Over > 0 {
		return ", spread over " + duration.Format(p.r.pace.Over)
	}
	return ""
}

// skipped names what is not replayed, and why.
func (p *report) skipped() {
	var t []*replay.Item
	for _, item := range p.items {
		if item.Verdict != replay.Wanted && item.Verdict != replay.Replayed && item.Verdict != replay.Older {
			t = append(t, item)
		}
	}
	for i, item := range t {
		if i == shownItems {
			p.s.out.Linef("… and %s more are skipped; -o json names all.", printer.Grouped(len(t)-i))
			break
		}
		p.s.out.Linef("Skipped %d (%s): %s.", item.ID, item.Key, printer.In(printer.Yellow, string(item.Verdict)))
	}
	if older := replay.Count(p.items)[replay.Older]; older > 0 {
		p.s.out.Linef("Left out %s: a newer one of the same key counts.", printer.Plural(older, "older failure"))
	}
}

func (p *report) outcomes(follower *replay.Follower, written bool) {
	counts := follower.Count(p.items)
	var parts []any
	for _, o := range []struct {
		outcome replay.Outcome
		colour  printer.Colour
		text    string
	}{
		{replay.Fetched, printer.Green, "fetched"},
		{replay.FailedAgain, printer.Red, "failed again"},
		{replay.Superseded, printer.Yellow, "superseded by a change"},
		{replay.Pending, printer.Yellow, "not known yet"},
	} {
		if n := counts[o.outcome]; n > 0 {
			parts = append(parts, printer.In(o.colour, printer.Grouped(n)+" "+o.text))
		}
	}
	if len(parts) > 0 {
		p.s.out.Linef("Outcome: %s"+strings.Repeat(", %s", len(parts)-1)+".", parts...)
	}
	if counts[replay.Fetched] > 0 && written {
		p.s.out.Linef("The writer has dealt with all of them.")
	} else if counts[replay.Fetched] > 0 {
		p.s.out.Linef("The writer has not dealt with all of them yet; `curlctl status` shows its backlog.")
	}
	n := 0
	for _, item := range p.items {
		end := follower.End(item)
		if !item.Followed() || end.Outcome != replay.FailedAgain {
			continue
		}
		if n++; n > shownItems {
			p.s.out.Linef("… and more; `curlctl failures` lists them.")
			return
		}
		p.s.out.Linef("Failed again: %s (%s), failure %d before.", item.Key, printer.In(printer.Red, end.Failure.Reason), item.ID)
	}
}

// code is the exit code: not all ended well.
func (p *report) code(follower *replay.Follower) error {
	if follower == nil {
		return nil
	}
	counts := follower.Count(p.items)
	if counts[replay.FailedAgain]+counts[replay.Pending] > 0 {
		return silent(exitFailedAgain)
	}
	return nil
}

// rows prints each item for programs.
func (p *report) rows(follower *replay.Follower) error {
	_, err := p.s.out.List(nil, printer.Rows(p.items, func(item *replay.Item) printer.Row {
		r := replayed{
			ID: item.ID, Namespace: item.Key.Namespace, ConfigMap: item.Key.Name, Key: item.Key.Key, Verdict: string(item.Verdict),
		}
		if follower != nil && item.Followed() {
			end := follower.End(item)
			r.Outcome = string(end.Outcome)
			if end.Failure != nil {
				r.Reason = end.Failure.Reason
			}
		}
		return printer.Row{Name: deadletter.Name(item.ID), Object: r}
	}))
	return err
}
