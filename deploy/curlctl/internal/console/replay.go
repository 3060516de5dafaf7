package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/audit"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/console/access"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/console/jobs"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/replay"
	"github.com/kv8s/curl-me-that/deploy/curlctl/operate"
)

const (
	// defaultRate is the initial rate of a dialog.
	defaultRate = "50/s"
	// alsoRecovered is the field to also replay keys that were fetched since.
	alsoRecovered = "also-recovered"
	// maxPlanned is the maximum number of failures that a dialog checks.
	maxPlanned = 1000
	// maxFollowed is the maximum number of failures whose outcome a job waits for, for at most followTimeout.
	maxFollowed   = 1000
	followTimeout = 5 * time.Minute
)

func (s *Server) replay(v *visit, submitted bool) (*page, error) {
	sel, err := v.selected(submitted)
	if err != nil {
		return nil, err
	}
	// If one right decides, check it before reading anything.
	if s.tokens == nil || sel.Namespace != "" {
		if err := v.need(access.Replay, sel.Namespace); err != nil {
			return nil, err
		}
	}
	rateText, again := v.rateField(), v.FormValue(alsoRecovered) != ""
	rate, wrong := readRate(rateText)
	d := &dialog{
		Title: "Replay failures", Path: "/failures/replay", Rate: &rateText, Back: sel.At("/failures"),
		Command: replayCommand(sel, rate, rateText, again),
	}
	if again {
		d.hide(alsoRecovered, "1")
	}
	var found []operate.DeadLetter
	for f, err := range sel.failures(v.Context(), v.client) {
		if err != nil {
			return nil, err
		}
		sel.top = max(sel.top, f.ID)
		if sel.count++; sel.count <= maxPlanned {
			found = append(found, f)
		}
	}
	n, err := s.describeReplay(v, d, sel, found)
	if err != nil {
		return nil, err
	}
	d.Button, d.Nothing = "Replay "+printer.Plural(n, "failure"), n == 0
	sel.repeat(d, n)
	if wrong != nil {
		return d.refuse(http.StatusBadRequest, wrong.Error()), nil
	}
	record := v.record("replay", sel.words(), n)
	return s.confirm(v, d, submitted, record, func(ctx context.Context, j *jobs.Job) error {
		return s.runReplay(ctx, j, v.person, sel, rate, record, again)
	})
}

// describeReplay describes a replay, and returns the number of its failures. It counts only wanted ones, unless
// too many are selected to check each.
func (s *Server) describeReplay(v *visit, d *dialog, sel selection, found []operate.DeadLetter) (int, error) {
	if sel.count > len(found) {
		d.Lines = []string{
			"Would replay up to " + printer.Plural(sel.count, "failure") + ".",
			"Keys that were fetched since, are no longer wanted or have changed are skipped.",
		}
		return sel.count, nil
	}
	items, err := replay.Plan(v.Context(), v.client, func(yield func(operate.DeadLetter, error) bool) {
		for _, f := range found {
			if !yield(f, nil) {
				return
			}
		}
	}, v.FormValue(alsoRecovered) != "", nil)
	if err == nil {
		err = s.mayReplay(v.Context(), v.person, items, sel.Namespace)
	}
	if err != nil {
		return 0, err
	}
	counts := replay.Count(items)
	n := counts[replay.Wanted]
	d.Lines = []string{fmt.Sprintf("Would replay %s of %s.", printer.Grouped(n), printer.Plural(len(items), "failure"))}
	d.Lines = append(d.Lines, skipped(counts)...)
	if counts[replay.Recovered] > 0 {
		d.Also = sel.address("/failures/replay", url.Values{alsoRecovered: {"1"}})
	}
	return n, nil
}

// skipped says how many failures are skipped and why.
func skipped(counts map[replay.Verdict]int) (lines []string) {
	for _, verdict := range []replay.Verdict{
		replay.Recovered, replay.Gone, replay.Changed, replay.Older, replay.Unreadable, replay.Already,
	} {
		if n := counts[verdict]; n > 0 {
			lines = append(lines, fmt.Sprintf("%s skipped: %s.", printer.Grouped(n), verdict))
		}
	}
	return lines
}

// mayReplay returns an error unless the person may replay in the namespaces of all items.
func (s *Server) mayReplay(ctx context.Context, who *access.Person, items []*replay.Item, namespace string) error {
	err := s.need(ctx, who, access.Replay, namespace)
	if len(items) == 0 || err == nil {
		return err
	}
	asked := map[string]bool{}
	for _, item := range items {
		if asked[item.Key.Namespace] {
			continue
		}
		asked[item.Key.Namespace] = true
		if err := s.need(ctx, who, access.Replay, item.Key.Namespace); err != nil {
			return err
		}
	}
	return nil
}

// replayCommand returns the equivalent command.
func replayCommand(sel selection, rate replay.Rate, rateText string, again bool) string {
	words := append([]string{"curlctl", "replay"}, sel.words()...)
	if rate > 0 {
		words = append(words, "--rate="+rateText)
	}
	if again {
		words = append(words, "--also-recovered")
	}
	return command(words...)
}

func (v *visit) rateField() string {
	if v.Form.Has("rate") {
		return strings.TrimSpace(v.FormValue("rate"))
	}
	return defaultRate
}

func readRate(text string) (rate replay.Rate, err error) {
	if text != "" {
		if err = rate.Set(text); err != nil {
			err = fmt.Errorf("rate: %w", err)
		}
	}
	return rate, err
}

// runReplay replays the selected failures. It waits for the outcome unless there are more than maxFollowed.
func (s *Server) runReplay( //nolint:revive // seven independent inputs
	ctx context.Context, j *jobs.Job, who *access.Person, sel selection, rate replay.Rate, record audit.Action, again bool,
) error {
	client := s.deps.Conn.Client
	j.Set("checked", 0)
	all := sel.failures(ctx, client)
	items, err := replay.Plan(ctx, client, all, again, func(n int) { j.Set("checked", n) })
	if err != nil {
		return err
	}
	if err := s.mayReplay(ctx, who, items, sel.Namespace); err != nil {
		return err
	}
	var follower *replay.Follower
	if len(items) <= maxFollowed {
		if follower, err = replay.Follow(ctx, client); err != nil {
			return err
		}
	}
	record.Selected = replay.Count(items)[replay.Wanted]
	failed := audit.Do(ctx, s.deps.Conn, record, s.deps.Now, func(ctx context.Context) (done, skipped int, err error) {
		j.Set("requested", 0)
		err = replay.Request(ctx, client, items, rate, func(done int) { j.Set("requested", done) })
		done = replay.Count(items)[replay.Replayed]
		return done, len(items) - done, err
	})
	for _, text := range skipped(replay.Count(items)) {
		j.Note(text)
	}
	if failed != nil || follower == nil {
		return failed
	}
	return s.followReplay(ctx, j, items, follower)
}

func (s *Server) followReplay(ctx context.Context, j *jobs.Job, items []*replay.Item, follower *replay.Follower) error {
	ctx, cancel := context.WithTimeout(ctx, followTimeout)
	defer cancel()
	err := follower.Wait(ctx, items, func(counts map[replay.Outcome]int) {
		j.Set("fetched or failed again", counts[replay.Fetched]+counts[replay.FailedAgain]+counts[replay.Superseded])
	})
	counts := replay.Outcomes(items)
	for _, outcome := range []replay.Outcome{replay.Fetched, replay.FailedAgain, replay.Superseded, replay.Pending} {
		if n := counts[outcome]; n > 0 {
			j.Note(printer.Grouped(n) + " " + string(outcome) + ".")
		}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return nil // a note reports the pending ones
	}
	return err
}
