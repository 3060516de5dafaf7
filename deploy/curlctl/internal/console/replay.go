package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/console/access"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/console/jobs"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/operator"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/replay"
	"github.com/kv8s/curl-me-that/proto/annotation/duration"
)

// defaultRate is in the field of a dialog; a replay of at most followMost failures is
// followed, for followFor.
const (
	defaultRate = "50/s"
	followMost  = 1000
	followFor   = 5 * time.Minute
)

func (s *Server) replay(v *visit, submitted bool) (*page, error) {
	sel, err := v.selected(submitted)
	if err != nil {
		return nil, err
	}
	// Who may replay nowhere that is selected is refused before anything is read.
	if s.tokens == nil || sel.Namespace != "" {
		if err := v.need(access.Replay, sel.Namespace); err != nil {
			return nil, err
		}
	}
	rateText, overText := v.paceFields()
	d := &dialog{Title: "Replay failures", Path: "/failures/replay", Rate: &rateText, Over: &overText, Back: sel.At("/failures")}
	pace, wrong := readPace(rateText, overText)
	d.Command = replayCommand(sel, pace, rateText)
	p, err := s.plans.of(v.person.Name, s.deps.Conn.Client, sel)
	if err != nil {
		return nil, err
	}
	made := p.ended(v.Context())
	switch {
	case !made && submitted && wrong == nil:
		return s.replayLater(v, d, p, replayJob{sel: sel, pace: pace, confirmed: v.confirmed()})
	case !made:
		return p.page(d.Title, d.Back), nil
	}
	s.plans.take(p)
	if p.err != nil {
		return nil, p.err
	}
	items := p.items
	if err := s.mayReplay(v.Context(), v.person, items, sel.Namespace); err != nil {
		return nil, err
	}
	for _, item := range items {
		sel.top = max(sel.top, item.ID)
	}
	n := replay.Count(items)[replay.Wanted]
	if unread, _ := p.unread.Count(); unread > 0 {
		d.Lines = append(d.Lines, printer.Plural(unread, "failure")+" cannot be read, and would be left out.")
	}
	d.Button, d.Nothing, d.Lines = "Replay "+printer.Plural(n, "failure"), n == 0, append(replayLines(items), d.Lines...)
	sel.repeat(d, n)
	if wrong != nil {
		return d.refuse(http.StatusBadRequest, wrong.Error()), nil
	}
	record := v.record("replay", sel.words(), n)
	return s.confirm(v, d, submitted, record, func(ctx context.Context, j *jobs.Job) error {
		return s.runReplay(ctx, j, items, pace, record)
	})
}

// replayJob is a replay that was confirmed while its plan was not made again yet.
type replayJob struct {
	sel       selection
	pace      replay.Pace
	confirmed int
}

// errChanged ends a job that was confirmed for another number.
var errChanged = errors.New("meanwhile the number has changed, and nothing was done; open the dialog again")

// replayLater begins a job that waits for the plan, and checks what the dialog
// would have checked.
func (s *Server) replayLater(v *visit, d *dialog, p *plan, r replayJob) (*page, error) {
	s.plans.take(p) // no other dialog ends it
	record := v.record("replay", r.sel.words(), r.confirmed)
	who := v.person
	next, err := s.begin(v, d, record, func(ctx context.Context, j *jobs.Job) error {
		if err := p.wait(ctx, j); err != nil {
			return err
		}
		if err := s.mayReplay(ctx, who, p.items, r.sel.Namespace); err != nil {
			return err
		}
		record.Selected = replay.Count(p.items)[replay.Wanted]
		if changed(r.confirmed, record.Selected) {
			return errChanged
		}
		return s.runReplay(ctx, j, p.items, r.pace, record)
	})
	if err != nil || next.redirect == "" {
		p.cancel()
	}
	return next, err
}

// mayReplay asks for the right in the namespaces of what is replayed.
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

// replayLines describe what a replay would do.
func replayLines(items []*replay.Item) []string {
	counts := replay.Count(items)
	lines := []string{fmt.Sprintf("Would replay %s of %s.", printer.Grouped(counts[replay.Wanted]), printer.Plural(len(items), "failure"))}
	for _, verdict := range []replay.Verdict{replay.Gone, replay.Changed, replay.Older, replay.Unreadable} {
		if n := counts[verdict]; n > 0 {
			lines = append(lines, fmt.Sprintf("%s left out: %s.", printer.Grouped(n), verdict))
		}
	}
	return lines
}

// replayCommand is what does the same; a rate is written as it was given.
func replayCommand(sel selection, pace replay.Pace, rateText string) string {
	words := append([]string{"curlctl", "replay"}, sel.words()...)
	if pace.Over > 0 {
		words = append(words, "--over="+duration.Format(pace.Over))
	} else if pace.Rate > 0 {
		words = append(words, "--rate="+rateText)
	}
	return command(words...)
}

func (v *visit) paceFields() (rate, over string) {
	rate = defaultRate
	if v.Form.Has("rate") {
		rate = strings.TrimSpace(v.FormValue("rate"))
	}
	return rate, strings.TrimSpace(v.FormValue("over"))
}

func readPace(rateText, overText string) (replay.Pace, error) {
	var pace replay.Pace
	if overText != "" {
		over, err := duration.Parse(overText)
		if err != nil || over < 0 {
			return pace, fmt.Errorf("over: %q is not a duration such as 30m or 2h", overText)
		}
		pace.Over = over
	}
	if rateText != "" && pace.Over == 0 {
		var rate replay.Rate
		if err := rate.Set(rateText); err != nil {
			return pace, fmt.Errorf("rate: %w", err)
		}
		pace.Rate = float64(rate)
	}
	return pace, nil
}

// runReplay asks, and follows what becomes of it if it is not too much.
func (s *Server) runReplay(ctx context.Context, j *jobs.Job, items []*replay.Item, pace replay.Pace, record operator.Action) error {
	var follower *replay.Follower
	if len(items) <= followMost && pace.Over == 0 {
		var err error
		if follower, err = replay.Follow(ctx, s.deps.Conn.Client, items); err != nil {
			return err
		}
		defer follower.Close()
	}
	end, err := operator.Begin(ctx, s.deps.Conn, record, s.deps.Now)
	if err != nil {
		return err
	}
	asked := replay.Request(ctx, s.deps.Conn.Client, items, pace, func(done int) { j.Set("asked", done) })
	counts := replay.Count(items)
	done := counts[replay.Replayed]
	if err := end(ctx, done, len(items)-done); asked == nil {
		asked = err
	}
	if n := counts[replay.Already]; n > 0 {
		j.Note(printer.Plural(n, "failure") + ": already replayed within two minutes.")
	}
	if n := counts[replay.Sooner]; n > 0 {
		j.Note(printer.Plural(n, "failure") + ": a retry is scheduled sooner.")
	}
	if asked != nil || follower == nil {
		return asked
	}
	return s.followReplay(ctx, j, items, follower)
}

func (s *Server) followReplay(ctx context.Context, j *jobs.Job, items []*replay.Item, follower *replay.Follower) error {
	ctx, cancel := context.WithTimeout(ctx, followFor)
	defer cancel()
	err := follower.Wait(ctx, items, func(counts map[replay.Outcome]int) {
		j.Set("fetched or failed again", counts[replay.Fetched]+counts[replay.FailedAgain]+counts[replay.Superseded])
	})
	counts := follower.Count(items)
	for _, outcome := range []replay.Outcome{replay.Fetched, replay.FailedAgain, replay.Superseded, replay.Pending} {
		if n := counts[outcome]; n > 0 {
			j.Note(printer.Grouped(n) + " " + string(outcome) + ".")
		}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return nil // what is pending is named
	}
	return err
}
