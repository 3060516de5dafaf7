package console

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/kv8s/curl-me-that/deploy/curlctl/broker"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/doctor"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/keys"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// Maximum numbers of rows.
const (
	pageRows  = 50
	groupRows = 20
)

func (s *Server) overviewPage(v *visit) (*page, error) {
	last, err := s.cache.Look(v.Context())
	if last.AsOf.IsZero() {
		return nil, err
	}
	groups := &table{Opens: "HOST"}
	for _, g := range last.Groups[:min(len(last.Groups), groupRows)] {
		groups.add(g.Row(s.deps.Now()), "/wants?"+url.Values{"state": {"failing"}, "host": {g.Host}}.Encode(), "")
	}
	return &page{
		template: "overview.html", Title: "Overview", Refresh: true, Command: "curlctl status",
		Data: map[string]any{"Numbers": last.Overview, "Groups": groups},
	}, nil
}

// selection has the failures that a request selects, named like the flags of curlctl.
type selection struct {
	keys.Selection

	// Values has the set parameters, without the cursor.
	Values url.Values
}

// selected parses the query or form.
func (v *visit) selected() (s selection, err error) {
	s.Values = url.Values{}
	s.Each(func(flag, _ string, value *string) {
		if *value = strings.TrimSpace(v.FormValue(flag)); *value != "" {
			s.Values.Set(flag, *value)
		}
	})
	if err = s.SetIDs(v.Form["id"]); err == nil {
		err = s.Parse(v.server.deps.Now())
	}
	if below := v.FormValue("below"); below != "" && err == nil {
		if s.Below, err = strconv.ParseUint(below, 10, 64); err != nil || s.Below == 0 {
			err = fmt.Errorf("below: %q is not the ID of a failure", below)
		}
	}
	if err != nil {
		return s, badRequest(err)
	}
	for _, id := range s.IDs {
		s.Values.Add("id", strconv.FormatUint(id, 10))
	}
	return s, nil
}

// At returns the address of a page for the same failures, with one more parameter.
func (s selection) At(path string, more ...string) string {
	values := maps.Clone(s.Values)
	if len(more) > 0 {
		values.Set(more[0], more[1])
	}
	return path + "?" + values.Encode()
}

func (s *Server) failuresPage(v *visit) (*page, error) {
	f, err := v.selected()
	if err != nil {
		return nil, err
	}
	last, err := s.cache.Look(v.Context())
	if errors.As(err, new(*broker.PermissionError)) {
		return nil, err // the server would not respond to the requests below either
	}
	rows := &table{Opens: "ID", Select: s.access.mayReplay}
	newest, oldest, older := uint64(0), uint64(0), ""
	for d, err := range v.client.DeadLetters(v.Context(), f.DeadLetterFilter) {
		if err != nil {
			return nil, err
		}
		if len(rows.Rows) == pageRows {
			older = f.At("/failures", "below", strconv.FormatUint(oldest, 10))
			break
		}
		newest, oldest = max(newest, d.ID), d.ID
		id := strconv.FormatUint(d.ID, 10)
		rows.add(last.record(d).Row(s.deps.Now()), "/failures/"+id, id)
	}
	data := map[string]any{"Filter": f, "Rows": rows, "Older": older, "Reasons": keys.Reasons()}
	if all := f.DeadLetterFilter; len(rows.Rows) > 0 {
		all.Below = 0
		if all.Exact() {
			counts, err := v.client.CountDeadLetters(v.Context(), all)
			if err != nil {
				return nil, err
			}
			data["Match"] = broker.Total(counts)
		}
	}
	live := maps.Clone(f.Values)
	live.Set("failed", strconv.FormatUint(newest, 10))
	return &page{
		template: "failures.html", Title: "Failures", Data: data, Live: live,
		Command: command(append([]string{"curlctl", "failures"}, f.Words()...)...),
	}, nil
}

// record returns a failure with the current state of its key.
func (r *reading) record(d broker.DeadLetter) keys.Record {
	row := keys.NewRecord(d)
	if !r.AsOf.IsZero() {
		row.Now = keys.CurrentState(row.Request, keys.Find(r.Keys, d.Key))
	}
	return row
}

func (s *Server) failurePage(v *visit) (*page, error) {
	id, err := strconv.ParseUint(v.PathValue("id"), 10, 64)
	if err != nil {
		return nil, &problem{http.StatusNotFound, fmt.Sprintf("%q is not the ID of a failure.", v.PathValue("id"))}
	}
	d, err := keys.Failure(v.Context(), v.client, id)
	if err != nil {
		return nil, err
	}
	last, _ := s.cache.Look(v.Context()) // without it, the current state of the key is unknown
	row := last.record(d)
	return &page{
		template: "failure.html", Title: "Failure " + v.PathValue("id"),
		Command: command("curlctl", "failures", "show", v.PathValue("id")), Data: map[string]any{
			"Record": row, "Fields": row.Fields(s.deps.Now()),
			"Snippet": keys.Snippet(d),
		},
	}, nil
}

func (s *Server) wantsPage(v *visit) (*page, error) {
	last, err := s.cache.Look(v.Context())
	if last.AsOf.IsZero() {
		return nil, err
	}
	listing, state, from := "wants", v.FormValue("state"), 0
	switch state {
	case "":
	case "failing":
		listing = state
	default:
		return nil, badRequest(fmt.Errorf("state: %q is not failing", state))
	}
	if text := v.FormValue("from"); text != "" {
		if from, err = strconv.Atoi(text); err != nil || from < 0 {
			return nil, badRequest(fmt.Errorf("from: %q is not a number of keys", text))
		}
	}
	f := keys.Filter{Scope: v.scope(), NotGood: state != ""}
	query := parameters(f.Scope)
	query.Set("state", state)
	rows := &table{Opens: "KEY"}
	all, next := 0, ""
	for _, k := range last.Keys {
		if !f.Selects(&k) {
			continue
		}
		if all++; all > from && len(rows.Rows) < pageRows {
			rows.add(k.Row(s.deps.Now()), address("objects", k.Namespace, k.Name), "")
		}
	}
	first := "/wants?" + query.Encode()
	if to := from + len(rows.Rows); to < all {
		next = first + "&from=" + strconv.Itoa(to)
	}
	return &page{
		template: "wants.html", Title: "Wanted",
		Command: command(append([]string{"curlctl", listing}, f.Words()...)...),
		Data:    map[string]any{"Filter": f, "Rows": rows, "All": all, "From": from, "First": first, "Next": next},
	}, nil
}

// scope returns the keys that a query or form selects.
func (v *visit) scope() keys.Scope {
	return keys.Scope{Namespace: v.FormValue("namespace"), Name: v.FormValue("name"), Host: v.FormValue("host")}
}

// parameters returns the query or form that selects a scope.
func parameters(s keys.Scope) url.Values {
	return url.Values{"namespace": {s.Namespace}, "name": {s.Name}, "host": {s.Host}}
}

// address joins the parts of a path.
func address(parts ...string) (path string) {
	for _, part := range parts {
		path += "/" + url.PathEscape(part)
	}
	return path
}

func (s *Server) objectPage(v *visit) (*page, error) {
	view := keys.ObjectStatus{Namespace: v.PathValue("namespace"), ConfigMap: v.PathValue("name")}
	unseen := "This console does not read Kubernetes. The page shows the data of NATS."
	if s.deps.Kubernetes != nil {
		unseen = ""
		if err := view.ReadCluster(v.Context(), s.deps.Kubernetes); err != nil {
			unseen = "Kubernetes is unavailable: " + err.Error()
		}
	}
	now := s.deps.Now()
	if err := view.ReadStreams(v.Context(), v.client, now); err != nil {
		return nil, err
	}
	name := view.Namespace + "/" + view.ConfigMap
	if !view.Known() {
		return nil, &problem{http.StatusNotFound, "ConfigMap " + name + ": not found."}
	}
	found, timeline := &table{Opens: "KEY"}, &table{}
	for _, k := range view.Keys {
		found.add(k.Row(now), address("versions", k.Namespace, k.Name, k.Key), "")
	}
	for _, e := range slices.Backward(view.Timeline) {
		timeline.add(e.Row(now), "", "")
	}
	return &page{template: "object.html", Title: name, Command: command("curlctl", "status", name), Data: map[string]any{
		"View": view, "Fields": view.Fields(now), "Unseen": unseen, "Keys": found, "Timeline": timeline,
	}}, nil
}

// change is a version of a key with what it changed.
type change struct {
	*v1.Version

	Age, Difference string
}

// versionsPage shows the versions of a key in the history, with their differences.
func (s *Server) versionsPage(v *visit) (*page, error) {
	key := pipeline.Key{Namespace: v.PathValue("namespace"), Name: v.PathValue("name"), Key: v.PathValue("key")}
	versions, err := v.client.Versions(v.Context(), key)
	if err != nil {
		return nil, err
	}
	changes := make([]change, len(versions))
	var newer []byte
	for i, version := range versions {
		changes[i] = change{Version: version, Age: printer.Age(s.deps.Now(), version.GetFetchedAt().AsTime())}
		body, err := v.client.Body(v.Context(), key.Namespace, version.GetSha256())
		if v.Context().Err() != nil {
			return nil, err
		}
		if i > 0 && newer != nil && err == nil { // else the history lacks a body
			changes[i-1].Difference = printer.Difference(body, newer,
				[2]string{printer.Short(version.GetSha256()), printer.Short(versions[i-1].GetSha256())})
		}
		newer = body
	}
	return &page{
		template: "versions.html", Title: key.Key,
		Command: command("curlctl", "history", key.Namespace+"/"+key.Name, key.Key),
		Data:    map[string]any{"Changes": changes, "Object": address("objects", key.Namespace, key.Name)},
	}, nil
}

// doctorPage shows the findings of doctor. If one is a missing permission, the checks after it are missing, too.
func (s *Server) doctorPage(v *visit) (*page, error) {
	ctx, stop := s.deps.Conn.Denials.CancelOnDenied(v.Context(), broker.ToList)
	defer stop()
	findings, err := doctor.Examine(ctx, s.deps.Conn, s.deps.Now)
	if err != nil {
		findings = append(findings, doctor.Finding{
			Check: "the rest", State: doctor.Bad, Detail: "not checked: " + err.Error(), Fix: "fix the findings above",
		})
	}
	found := &table{}
	for _, f := range findings {
		found.add(f.Row(), "", "")
	}
	return &page{template: "doctor.html", Title: "Doctor", Command: "curlctl doctor", Data: found}, nil
}

func (s *Server) helpPage(*visit) (*page, error) {
	return &page{template: "help.html", Title: "Keyboard"}, nil
}

// livePage returns the parts of an open page that change without a reload: the banners, the time, and the number
// of failures that match the filter of the page and are newer than its rows.
func (s *Server) livePage(v *visit) (*page, error) {
	f, err := v.selected()
	if err != nil {
		return nil, err
	}
	_, _ = s.cache.Look(v.Context()) // the banners show its error
	found := 0
	if above := v.FormValue("failed"); above != "" {
		id, err := strconv.ParseUint(above, 10, 64)
		if err != nil {
			return nil, badRequest(fmt.Errorf("failed: %q is not a number", above))
		}
		for d, err := range v.client.DeadLetters(v.Context(), f.DeadLetterFilter) {
			if err != nil || d.ID <= id || found == maxNew {
				break
			}
			found++
		}
	}
	return &page{template: "live.html", Title: "Live", Data: map[string]any{"At": f.At("/failures"), "New": found}}, nil
}

// maxNew is the maximum number of new failures that an open page counts.
const maxNew = 1000

// command quotes a command line for a shell.
func command(words ...string) string {
	for i, word := range words {
		if !printer.Bare(word) {
			words[i] = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
		}
	}
	return strings.Join(words, " ")
}
