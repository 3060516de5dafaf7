package console

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/console/access"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/console/jobs"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/operator"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/overview"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/readable"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/replay"
	"github.com/kv8s/curl-me-that/proto/annotation/duration"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/pipeline/operate"
)

// dialog asks before an action; its form is the action.
type dialog struct {
	Title, Button, Path, Back string
	// Lines are what would be done.
	Lines []string
	// Hidden are the fields that repeat the plan.
	Hidden []hidden
	// Rate, Over and For are the values of their fields; absent where nil.
	Rate, Over, For *string
	// Word is what to type; empty: nothing.
	Word    string
	Command string
	Error   string
	// Nothing: there is nothing to do.
	Nothing, Danger bool
}

type hidden struct{ Name, Value string }

// Bounds of what one dialog does.
const (
	defaultRate   = "50/s"
	wordAbove     = 100
	followMost    = 1000
	followFor     = 5 * time.Minute
	changedShare  = 20 // a count may differ by one part in so many
	purgeWord     = "purge"
	maxIDs        = 1000
	defaultPause  = "1h"
	statusChanged = http.StatusConflict
)

// actionRoutes adds each dialog and its action.
func (s *Server) actionRoutes(mux *http.ServeMux) {
	for path, act := range map[string]func(*visit, bool) (*page, error){
		"/failures/replay": s.replay, "/failures/purge": s.purge, "/refetch": s.refetch, "/pause": s.pause, "/resume": s.resume,
	} {
		mux.HandleFunc("GET "+path, s.visited(func(v *visit) (*page, error) { return act(v, false) }))
		mux.HandleFunc("POST "+path, s.visited(func(v *visit) (*page, error) {
			if j := s.jobs.Find(v.FormValue("job")); j != nil { // a second click
				return &page{redirect: v.scoped("/jobs/" + j.ID)}, nil
			}
			return act(v, true)
		}))
	}
	mux.HandleFunc("GET /jobs/{id}", s.visited(s.jobPage))
	mux.HandleFunc("POST /jobs/{id}/stop", s.visited(s.stop))
}

func (d *dialog) page(status int) *page {
	return &page{template: "dialog.html", title: d.Title, data: d, status: status}
}

// refuse shows the dialog again, and why.
func (d *dialog) refuse(status int, why string) *page {
	d.Error = why
	return d.page(status)
}

func (d *dialog) hide(name, value string) { d.Hidden = append(d.Hidden, hidden{name, value}) }

// begin starts a job for a dialog that was confirmed.
func (s *Server) begin(v *visit, d *dialog, record operator.Action, do func(context.Context, *jobs.Job) error) (*page, error) {
	task := jobs.Task{
		ID: v.FormValue("job"), Action: record.Name, Filter: record.Filter, Command: d.Command, Person: v.person.Name, Namespace: v.namespace,
		Selected: record.Selected,
	}
	if len(task.ID) < 16 || len(task.ID) > 64 {
		return nil, badRequest(errors.New("job: this form is incomplete; open the dialog again"))
	}
	if !s.jobs.Start(task, do) {
		return d.refuse(http.StatusConflict, "A job is running already. Stop it, or wait until it has ended: the page Audit lists it."), nil
	}
	return &page{redirect: v.scoped("/jobs/" + task.ID)}, nil
}

// record is the audit of an action of the person.
func (v *visit) record(action string, filter []string, selected int) operator.Action {
	return operator.Action{Name: action, Filter: operator.Filter(filter), Selected: selected, OnBehalfOf: v.person.OnBehalfOf, Via: operator.Console}
}

// changed reports whether a count differs too much from the one that was
// confirmed.
func changed(confirmed, now int) bool {
	return max(confirmed-now, now-confirmed)*changedShare > max(confirmed, 1)
}

// selection is what a replay or purge is meant for.
type selection struct {
	filter
	ids []uint64
	top uint64
}

// selected reads ids, or the filter. What failed after the dialog was opened is
// not selected.
func (v *visit) selected(submitted bool) (selection, error) {
	f, err := v.readFilter()
	s := selection{filter: f}
	if err != nil {
		return s, err
	}
	s.Dead.Below = 0
	for _, text := range v.Form["id"] {
		id, err := strconv.ParseUint(text, 10, 64)
		if err != nil || id == 0 {
			return s, badRequest(fmt.Errorf("id: %q is not the ID of a failure", text))
		}
		if s.ids = append(s.ids, id); len(s.ids) > maxIDs {
			return s, badRequest(fmt.Errorf("id: more than %d; select by filter", maxIDs))
		}
	}
	if submitted {
		top, err := strconv.ParseUint(v.FormValue("top"), 10, 64)
		if err != nil {
			return s, badRequest(errors.New("top: this form is incomplete; open the dialog again"))
		}
		s.Dead.Below = top + 1
	}
	return s, nil
}

// failures reads what is selected. The right is that of its namespace, so a failure
// of another is not found.
func (s selection) failures(ctx context.Context, client *operate.Client, unread *readable.Unread) iter.Seq2[operate.DeadLetter, error] {
	if len(s.ids) == 0 {
		return readable.Only(unread, client.DeadLetters(ctx, s.Dead))
	}
	return func(yield func(operate.DeadLetter, error) bool) {
		for _, id := range s.ids {
			f, err := failureIn(ctx, client, id, s.Namespace)
			if !yield(f, err) || err != nil {
				return
			}
		}
	}
}

// words are how curlctl selects the same.
func (s selection) words() []string {
	if len(s.ids) == 0 {
		if words := s.Words(); len(words) > 0 {
			return words
		}
		return []string{"--all"}
	}
	var words []string
	for _, id := range s.ids {
		words = append(words, strconv.FormatUint(id, 10))
	}
	return words
}

// repeat puts what is selected into the form.
func (s selection) repeat(d *dialog, count int) {
	for _, field := range filterFields() {
		if value := s.Values.Get(field); value != "" {
			d.hide(field, value)
		}
	}
	for _, id := range s.ids {
		d.hide("id", strconv.FormatUint(id, 10))
	}
	d.hide("top", strconv.FormatUint(s.top, 10))
	d.hide("count", strconv.Itoa(count))
	d.hide("job", rand.Text())
	d.Back = s.At("/failures")
}

// confirmed reads the count of the dialog.
func (v *visit) confirmed() int {
	n, err := strconv.Atoi(v.FormValue("count"))
	if err != nil {
		return -1
	}
	return n
}

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
	p, err := s.plans.of(personName(v.person.Name), s.deps.Conn.Client, sel)
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
	switch {
	case wrong != nil:
		return d.refuse(http.StatusBadRequest, wrong.Error()), nil
	case !submitted || n == 0:
		return d.page(0), nil
	case changed(v.confirmed(), n):
		return d.refuse(statusChanged, "Meanwhile the number has changed; look again."), nil
	}
	record := v.record("replay", sel.words(), n)
	return s.begin(v, d, record, func(ctx context.Context, j *jobs.Job) error {
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

func (s *Server) purge(v *visit, submitted bool) (*page, error) {
	sel, err := v.selected(submitted)
	if err != nil {
		return nil, err
	}
	if err := v.need(access.Purge, sel.Namespace); err != nil {
		return nil, err
	}
	n := 0
	for f, err := range sel.failures(v.Context(), s.deps.Conn.Client, &v.unread) {
		if err != nil {
			return nil, err
		}
		n++
		sel.top = max(sel.top, f.ID)
	}
	d := &dialog{
		Title: "Remove failures from the record", Button: "Remove " + printer.Plural(n, "failure"), Path: "/failures/purge", Nothing: n == 0, Danger: true,
		Lines:   []string{"Would remove " + printer.Plural(n, "failure") + " from the record.", "What is wanted stays wanted; what is removed cannot be replayed any more."},
		Command: command(append([]string{"curlctl", "failures", "purge"}, sel.words()...)...),
	}
	if n > wordAbove {
		d.Word = purgeWord
	}
	if len(sel.ids) > 0 {
		d.Command = "" // curlctl purges by filter
	}
	sel.repeat(d, n)
	switch {
	case !submitted || n == 0:
		return d.page(0), nil
	case d.Word != "" && strings.TrimSpace(v.FormValue("word")) != d.Word:
		return d.refuse(http.StatusBadRequest, "Type the word "+d.Word+" to confirm."), nil
	case changed(v.confirmed(), n):
		return d.refuse(statusChanged, "Meanwhile the number has changed; look again."), nil
	}
	record := v.record("purge", sel.words(), n)
	return s.begin(v, d, record, func(ctx context.Context, j *jobs.Job) error {
		return s.runPurge(ctx, j, sel, record)
	})
}

func (s *Server) runPurge(ctx context.Context, j *jobs.Job, sel selection, record operator.Action) error {
	end, err := operator.Begin(ctx, s.deps.Conn, record, s.deps.Now)
	if err != nil {
		return err
	}
	removed := 0
	if len(sel.ids) == 0 {
		removed, err = operator.PurgeFailures(ctx, s.deps.Conn.Client, sel.Dead)
	}
	for _, id := range sel.ids {
		if err = s.deps.Conn.Client.DeleteDeadLetter(ctx, id); err != nil {
			break
		}
		removed++
	}
	j.Set("removed", removed)
	return errors.Join(err, end(ctx, removed, record.Selected-removed))
}

func (s *Server) refetch(v *visit, submitted bool) (*page, error) {
	namespace, name, host := v.FormValue("namespace"), v.FormValue("name"), v.FormValue("host")
	if v.namespace != "" {
		namespace = v.namespace
	}
	if err := v.need(access.Replay, namespace); err != nil {
		return nil, err
	}
	var wants []operate.Want
	for w, err := range readable.Only(&v.unread, s.deps.Conn.Client.Wants(v.Context(), namespace, name)) {
		if err != nil {
			return nil, err
		}
		if host == "" || pipeline.HostIs(w.Want.GetUrl(), host) {
			w.Want = nil // read again when its turn comes
			wants = append(wants, w)
		}
	}
	rateText, _ := v.paceFields()
	d := &dialog{
		Title: "Fetch now", Button: "Fetch " + printer.Plural(len(wants), "key"), Path: "/refetch", Nothing: len(wants) == 0, Rate: &rateText,
		Lines: []string{"Would fetch " + printer.Plural(len(wants), "key") + " now.", "What has not changed at its URL is not written."},
		Back:  "/wants",
	}
	for _, h := range []hidden{{"namespace", namespace}, {"name", name}, {"host", host}, {"count", strconv.Itoa(len(wants))}, {"job", rand.Text()}} {
		if h.Value != "" {
			d.Hidden = append(d.Hidden, h)
		}
	}
	pace, err := readPace(rateText, "")
	words := refetchWords(namespace, name, host)
	if host == "" {
		d.Command = command(append([]string{"curlctl", "refetch"}, words...)...)
	}
	switch {
	case err != nil:
		return d.refuse(http.StatusBadRequest, err.Error()), nil
	case !submitted || len(wants) == 0:
		return d.page(0), nil
	case changed(v.confirmed(), len(wants)):
		return d.refuse(statusChanged, "Meanwhile the number has changed; look again."), nil
	}
	record := v.record("refetch", words, len(wants))
	return s.begin(v, d, record, func(ctx context.Context, j *jobs.Job) error {
		return s.runRefetch(ctx, j, wants, pace, record)
	})
}

func refetchWords(namespace, name, host string) []string {
	var words []string
	switch {
	case namespace != "" && name != "":
		words = []string{namespace + "/" + name}
	case namespace != "":
		words = []string{"--all", "--namespace=" + namespace}
	default:
		words = []string{"--all"}
	}
	if host != "" {
		words = append(words, "--host="+host)
	}
	return words
}

func (s *Server) runRefetch(ctx context.Context, j *jobs.Job, wants []operate.Want, pace replay.Pace, record operator.Action) error {
	end, err := operator.Begin(ctx, s.deps.Conn, record, s.deps.Now)
	if err != nil {
		return err
	}
	done, err := replay.Refetch(ctx, s.deps.Conn.Client, wants, pace, func(n int) { j.Set("asked", n) })
	return errors.Join(err, end(ctx, done, len(wants)-done))
}

func (s *Server) pause(v *visit, submitted bool) (*page, error) {
	if err := v.need(access.Pause, ""); err != nil {
		return nil, err
	}
	limit := defaultPause
	if v.Form.Has("for") {
		limit = strings.TrimSpace(v.FormValue("for"))
	}
	d := &dialog{
		Title: "Pause fetching", Button: "Pause", Path: "/pause", Back: "/", For: &limit,
		Lines: []string{"Stops the delivery of requests to all fetchers.", "Nothing is lost: what is in work ends, what comes waits, timers fire into the backlog."},
	}
	until := s.deps.Now().Add(overview.Forever)
	words := []string{"curlctl", "pause"}
	if limit != "" {
		period, err := duration.Parse(limit)
		if bad := err != nil || period <= 0; bad {
			return d.refuse(http.StatusBadRequest, fmt.Sprintf("for: %q is not a duration such as 30m or 2h", limit)), nil
		}
		until = s.deps.Now().Add(period)
		words = append(words, "--for="+duration.Format(period))
	}
	d.Command = command(words...)
	if !submitted {
		return d.page(0), nil
	}
	return s.change(v, v.record("pause", words[2:], 0), func(ctx context.Context) error { return s.deps.Conn.Client.PauseFetching(ctx, until) })
}

func (s *Server) resume(v *visit, submitted bool) (*page, error) {
	if err := v.need(access.Pause, ""); err != nil {
		return nil, err
	}
	if !submitted {
		return (&dialog{
			Title: "Let fetching go on", Button: "Resume", Path: "/resume", Back: "/", Command: "curlctl resume",
			Lines: []string{"The fetchers go on with what has waited."},
		}).page(0), nil
	}
	return s.change(v, v.record("resume", nil, 0), s.deps.Conn.Client.ResumeFetching)
}

// change does at once what needs no job.
func (s *Server) change(v *visit, record operator.Action, do func(context.Context) error) (*page, error) {
	end, err := operator.Begin(v.Context(), s.deps.Conn, record, s.deps.Now)
	if err != nil {
		return nil, err
	}
	if err := do(v.Context()); err != nil {
		return nil, err
	}
	s.model.Poll(v.Context())
	return &page{redirect: "/"}, end(v.Context(), 1, 0)
}

func (s *Server) jobPage(v *visit) (*page, error) {
	j := s.jobs.Find(v.PathValue("id"))
	if j == nil || v.namespace != "" && j.Namespace != v.namespace {
		return nil, notFound("There is no such job; it has ended long ago, or with an earlier console. The audit has its record.")
	}
	view := j.View()
	return &page{template: "job.html", title: "Job " + view.Action, refresh: view.Running, data: map[string]any{
		"Job": view, "Mine": j.Person == v.person.Name,
	}}, nil
}

// stop ends a job of the person.
func (s *Server) stop(v *visit) (*page, error) {
	j := s.jobs.Find(v.PathValue("id"))
	if j == nil || j.Person != v.person.Name {
		return nil, notFound("%s has no such job.", v.person.Name)
	}
	j.Stop()
	return &page{redirect: v.scoped("/jobs/" + j.ID)}, nil
}

// scoped adds the namespace of a person who may see one only.
func (v *visit) scoped(path string) string {
	if v.namespace != "" {
		path += "?namespace=" + url.QueryEscape(v.namespace)
	}
	return path
}
