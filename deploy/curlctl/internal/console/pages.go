package console

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/console/access"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/console/jobs"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/console/model"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/deadletter"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/doctor"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/overview"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/readable"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// Lengths of the shorter lists.
const (
	groupRows = 8
	hostRows  = 200
	queueRows = 50
	auditRows = 100
)

func (s *Server) overviewPage(v *visit) (*page, error) {
	s.model.Look(v.Context())
	n := s.model.Numbers(v.namespace)
	if err := s.unknown(n); err != nil {
		return nil, err
	}
	entries, last := s.model.Passing(v.namespace, 0)
	slices.Reverse(entries)
	live := url.Values{"entries": {strconv.FormatUint(last, 10)}}
	return &page{template: "overview.html", title: "Overview", live: live, data: map[string]any{
		"Numbers": n, "Requests": durable(n, pipeline.FetcherConsumer), "Results": durable(n, pipeline.WriterConsumer),
		"Groups": n.Groups[:min(len(n.Groups), groupRows)], "Bad": n.Now.Failing + n.Now.Refused,
		"Scoped": v.namespace != "", "Passing": entries[:min(len(entries), passingRows)],
		"Pause": v.namespace == "" && v.can(access.Pause),
	}}, nil
}

const passingRows = 12

// unknown returns the error of a model without a reading, or without a part that a page needs.
func (s *Server) unknown(n model.Numbers, parts ...model.Part) error {
	for _, part := range parts {
		if err := n.Missing[part]; err != nil {
			return err
		}
	}
	switch {
	case !n.AsOf.IsZero():
		return nil
	case n.Err != nil:
		return n.Err
	case !s.deps.Conn.Conn.IsConnected():
		return errors.New("no connection")
	}
	return &problem{503, "Loading", "Reading the streams.", "This page reloads by itself."}
}

// durable returns the consumer with a name, with zeros if it is unknown.
func durable(n model.Numbers, name string) overview.Consumer {
	for _, c := range n.Consumers {
		if c.Name == name {
			return c
		}
	}
	return overview.Consumer{Name: name}
}

func (s *Server) hostsPage(v *visit) (*page, error) {
	s.model.Look(v.Context())
	if err := s.unknown(s.model.Numbers(v.namespace), model.Wants); err != nil {
		return nil, err
	}
	hosts := s.model.Hosts(v.namespace)
	wanted := strings.ToLower(strings.TrimSpace(v.FormValue("q")))
	hosts = slices.DeleteFunc(slices.Clone(hosts), func(h model.Host) bool { return !strings.Contains(h.Name, wanted) })
	return &page{template: "hosts.html", title: "Hosts", data: map[string]any{
		"Hosts": hosts[:min(len(hosts), hostRows)], "More": max(0, len(hosts)-hostRows), "All": len(hosts), "Query": wanted,
		"Replay": v.can(access.Replay), "Scoped": v.namespace != "",
	}}, nil
}

// bar of the histogram.
type bar struct{ X, Height, Count, Minute int }

const barHeight = 64

func (s *Server) schedulePage(v *visit) (*page, error) {
	s.model.Look(v.Context())
	n := s.model.Numbers(v.namespace)
	if err := s.unknown(n, model.Timers); err != nil {
		return nil, err
	}
	var at time.Time
	after, key, _ := strings.Cut(v.FormValue("after"), "/")
	if after != "" {
		var err error
		if at, err = time.Parse(time.RFC3339Nano, after); err != nil {
			return nil, badRequest(fmt.Errorf("after: %q is not a time", after))
		}
	}
	rows, minutes := s.model.Schedule(v.namespace, at, keyOf(key), pageRows+1)
	bars, most, hour := histogram(minutes)
	next := ""
	if len(rows) > pageRows {
		rows = rows[:pageRows]
		next = rows[pageRows-1].At.UTC().Format(time.RFC3339Nano) + "/" + rows[pageRows-1].Key.String()
	}
	return &page{template: "schedule.html", title: "Schedule", data: map[string]any{
		"Bars": bars, "Most": most, "Hour": hour, "Rows": rows, "Next": next, "Timers": n.Timers, "After": after,
	}}, nil
}

// number parses a number in the address (0 without one).
func number(field, text string) (uint64, error) {
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, badRequest(fmt.Errorf("%s: %q is not a number", field, text))
	}
	return n, nil
}

// histogram draws the timers per minute of the next hour.
func histogram(minutes [60]int) (bars []bar, most, hour int) {
	most = slices.Max(minutes[:])
	for i, n := range minutes {
		hour += n
		b := bar{X: i * 10, Count: n, Minute: i}
		if n > 0 {
			b.Height = max(2, n*barHeight/most)
		}
		bars = append(bars, b)
	}
	return bars, most, hour
}

func (s *Server) wantsPage(v *visit) (*page, error) {
	s.model.Look(v.Context())
	if err := s.unknown(s.model.Numbers(v.namespace), model.Wants); err != nil {
		return nil, err
	}
	name, host, after, state := v.FormValue("name"), v.FormValue("host"), v.FormValue("after"), v.FormValue("state")
	namespace := cmp.Or(v.namespace, v.FormValue("namespace"))
	var namespaces []string
	if v.namespace == "" {
		namespaces = s.model.Namespaces()
	}
	if state != "" && state != "failing" {
		return nil, badRequest(fmt.Errorf("state: %q is not failing", state))
	}
	rows, all := s.model.Wants(model.Filter{Namespace: namespace, Name: name, Host: host, Failing: state != ""},
		keyOf(after), pageRows+1)
	next := ""
	if len(rows) > pageRows {
		rows = rows[:pageRows]
		next = "/wants?" + url.Values{
			"namespace": {namespace}, "name": {name}, "host": {host}, "state": {state}, "after": {rows[pageRows-1].String()},
		}.Encode()
	}
	return &page{template: "wants.html", title: "Wanted", data: map[string]any{
		"Rows": rows, "All": all, "Next": next, "Namespace": namespace, "Name": name, "Host": host, "State": state,
		"Namespaces": namespaces, "Scoped": v.namespace != "", "After": after, "Refetch": v.can(access.Replay),
	}}, nil
}

// keyOf parses a cursor; missing parts are empty.
func keyOf(text string) pipeline.Key {
	namespace, rest, _ := strings.Cut(text, "/")
	name, key, _ := strings.Cut(rest, "/")
	return pipeline.Key{Namespace: namespace, Name: name, Key: key}
}

// queued is a request that no fetcher has handled yet.
type queued struct {
	Sequence  uint64
	At        time.Time
	Key       pipeline.Key
	Kind, URL string
	Cause     string
}

func (s *Server) queuePage(v *visit) (*page, error) {
	if v.namespace != "" {
		return nil, forbidden("The queue shows all namespaces.")
	}
	s.model.Look(v.Context())
	n := s.model.Numbers("")
	if err := s.unknown(n); err != nil {
		return nil, err
	}
	requests := durable(n, pipeline.FetcherConsumer)
	var rows []queued
	for _, kind := range []struct {
		name string
		kind pipeline.Kind
	}{{"want", pipeline.KindWant}, {"due", pipeline.KindDue}} {
		if requests.Backlog+uint64(max(requests.InFlight, 0)) == 0 {
			break
		}
		some, err := s.waiting(v, kind.name, kind.kind, requests.Handled+1)
		if err != nil {
			return nil, err
		}
		rows = append(rows, some...)
	}
	slices.SortFunc(rows, func(a, b queued) int { return cmp.Compare(a.Sequence, b.Sequence) })
	return &page{template: "queue.html", title: "Queue", refresh: true, data: map[string]any{
		"Requests": requests, "Results": durable(n, pipeline.WriterConsumer), "Rows": rows[:min(len(rows), queueRows)],
		"Numbers": n,
	}}, nil
}

// waiting reads the oldest requests of a kind.
func (s *Server) waiting(v *visit, name string, kind pipeline.Kind, from uint64) ([]queued, error) {
	var rows []queued
	for len(rows) < queueRows {
		m, err := s.deps.Conn.Client.NextMessage(v.Context(), pipeline.Requests, kind.Subjects("", ""), from)
		if errors.Is(err, pipeline.ErrNoMessage) {
			break
		}
		if err != nil {
			return nil, err
		}
		from = m.Sequence + 1
		_, key, err := pipeline.ParseSubject(m.Subject)
		if err != nil || len(m.Data) == 0 { // the watcher handles tombstones
			continue
		}
		row := queued{Sequence: m.Sequence, At: m.Time, Key: key, Kind: name}
		if want, err := pipeline.DecodeWant(key, m.Data); kind == pipeline.KindWant && err == nil {
			row.URL, row.Cause = deadletter.WithoutQuery(want.GetUrl()), pipeline.CauseName(want.GetCause())
		}
		if due, err := pipeline.DecodeDue(key, m.Data); kind == pipeline.KindDue && err == nil {
			row.URL, row.Cause = deadletter.WithoutQuery(due.GetWant().GetUrl()), pipeline.CauseName(due.GetCause())
		}
		rows = append(rows, row)
	}
	return rows, nil
}

func (s *Server) auditPage(v *visit) (*page, error) {
	if err := v.need(access.Audits, ""); err != nil {
		return nil, err
	}
	var rows []*v1.Audit
	for a, err := range readable.Only(&v.unread, s.deps.Conn.Client.Audits(v.Context())) {
		if err != nil {
			return nil, err
		}
		if rows = append(rows, a); len(rows) == auditRows {
			break
		}
	}
	all := s.jobs.List()
	running := slices.ContainsFunc(all, func(j jobs.View) bool { return j.Running })
	return &page{template: "audit.html", title: "Audit", refresh: running, data: map[string]any{
		"Rows": rows,
		"Jobs": all,
	}}, nil
}

func (s *Server) doctorPage(v *visit) (*page, error) {
	if v.namespace != "" {
		return nil, forbidden("The Doctor checks all namespaces.")
	}
	ctx, stop := s.deps.Refusals.CancelOnDenied(v.Context(), "")
	findings, err := doctor.Examine(ctx, s.deps.Conn, s.deps.Now)
	stop()
	switch {
	case len(findings) == 0 && err != nil:
		return nil, err
	case err != nil:
		findings = append(findings, doctor.Finding{
			Check: "the rest", State: doctor.Bad, Detail: "not checked: " + err.Error(),
			Fix: "fix the findings above, and reload this page",
		})
	}
	order := []string{doctor.Bad, doctor.Warning, doctor.Unknown, doctor.OK}
	slices.SortStableFunc(findings, func(a, b doctor.Finding) int {
		return cmp.Compare(slices.Index(order, a.State), slices.Index(order, b.State))
	})
	bad := 0
	for _, f := range findings {
		if f.State == doctor.Bad || f.State == doctor.Warning {
			bad++
		}
	}
	return &page{template: "doctor.html", title: "Doctor", data: map[string]any{"Findings": findings, "Bad": bad}}, nil
}

func (s *Server) helpPage(*visit) (*page, error) {
	return &page{template: "help.html", title: "Keyboard", data: s.navigation()}, nil
}

// search redirects to a failure by its ID, an object, the failures of a host, or the keys of
// ConfigMaps with a name.
func (s *Server) search(v *visit) (*page, error) {
	q := strings.TrimSpace(v.FormValue("q"))
	to := "/failures"
	query := url.Values{}
	if v.namespace != "" {
		query.Set("namespace", v.namespace)
	}
	id := strings.TrimPrefix(strings.TrimPrefix(q, "failure/"), "#")
	switch _, err := strconv.ParseUint(id, 10, 63); {
	case q == "":
	case err == nil:
		to = "/failures/" + id
	case strings.Count(q, "/") == 1:
		namespace, name, _ := strings.Cut(q, "/")
		to = "/objects/" + url.PathEscape(namespace) + "/" + url.PathEscape(name)
	case strings.Contains(q, "."):
		query.Set("host", q)
	default:
		to = "/wants"
		query.Set("name", q)
	}
	if len(query) > 0 {
		to += "?" + query.Encode()
	}
	return &page{redirect: to}, nil
}
