package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/keys"
	"github.com/kv8s/curl-me-that/deploy/curlctl/operate"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// Maximum lengths of the other lists.
const (
	groupRows = 8
	hostRows  = 200
)

func (s *Server) overviewPage(v *visit) (*page, error) {
	last, err := s.reading(v)
	if err != nil {
		return nil, err
	}
	n := last.Numbers()
	return &page{template: "overview.html", title: "Overview", refresh: true, data: map[string]any{
		"Numbers": n, "Requests": consumer(n, pipeline.FetcherConsumer), "Results": consumer(n, pipeline.WriterConsumer),
		"Groups": n.Groups[:min(len(n.Groups), groupRows)], "Bad": n.Now.Failing(),
	}}, nil
}

// reading returns the last reading, or an error if there is none.
func (s *Server) reading(v *visit) (reading, error) {
	last := s.model.Look(v.Context(), s.ended)
	switch {
	case !last.AsOf.IsZero():
		return last, nil
	case last.Err != nil:
		return last, last.Err
	case !s.deps.Conn.Conn.IsConnected():
		return last, errors.New("no connection")
	}
	return last, &problem{503, "Loading", "Reading the streams.", "This page reloads by itself."}
}

// consumer returns the consumer with a name. If it is unknown, its numbers are 0.
func consumer(n keys.Overview, name string) keys.Consumer {
	for _, c := range n.Consumers {
		if c.Name == name {
			return c
		}
	}
	return keys.Consumer{Name: name}
}

func (s *Server) hostsPage(v *visit) (*page, error) {
	last, err := s.reading(v)
	if err != nil {
		return nil, err
	}
	wanted := strings.ToLower(strings.TrimSpace(v.FormValue("q")))
	other := func(h hostCounts) bool { return !strings.Contains(h.Name, wanted) }
	hosts := slices.DeleteFunc(last.Hosts(), other)
	return &page{template: "hosts.html", title: "Hosts", data: map[string]any{
		"Hosts": hosts[:min(len(hosts), hostRows)], "More": max(0, len(hosts)-hostRows), "All": len(hosts), "Query": wanted,
		"Replay": s.deps.Access.mayReplay,
	}}, nil
}

func (s *Server) wantsPage(v *visit) (*page, error) {
	last, err := s.reading(v)
	if err != nil {
		return nil, err
	}
	name, host, after, state := v.FormValue("name"), v.FormValue("host"), v.FormValue("after"), v.FormValue("state")
	namespace := v.FormValue("namespace")
	if state != "" && state != "failing" {
		return nil, badRequest(fmt.Errorf("state: %q is not failing", state))
	}
	rows, all := last.Wants(keyFilter{Namespace: namespace, Name: name, Host: host, Failing: state != ""},
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
		"After": after, "Refetch": s.deps.Access.mayReplay,
	}}, nil
}

func (s *Server) objectPage(v *visit) (*page, error) {
	s.model.Look(v.Context(), s.ended)
	view := keys.View{
		Namespace: v.PathValue("namespace"), ConfigMap: v.PathValue("name"),
		Timeline: []keys.TimelineEntry{},
	}
	unseen := s.readObject(v.Context(), &view)
	if err := view.ReadStreams(v.Context(), v.client, s.deps.Now()); err != nil {
		return nil, err
	}
	if !view.Exists && view.Watcher == nil && len(view.Timeline) == 0 && len(view.Keys) == 0 {
		return nil, notFound("ConfigMap %s/%s: not found.", view.Namespace, view.ConfigMap)
	}
	slices.Reverse(view.Timeline)
	return &page{template: "object.html", title: view.Namespace + "/" + view.ConfigMap, data: map[string]any{
		"View": view, "Unseen": unseen, "Replay": s.deps.Access.mayReplay,
		"Command": command("curlctl", "status", view.Namespace+"/"+view.ConfigMap),
	}}, nil
}

// readObject adds the objects of Kubernetes, or returns the reason if it cannot.
func (s *Server) readObject(ctx context.Context, view *keys.View) (unseen string) {
	if s.deps.Kubernetes == nil {
		return "This console does not read Kubernetes. The page shows the data of NATS."
	}
	if err := view.ReadCluster(ctx, s.deps.Kubernetes); err != nil {
		return "Kubernetes is unavailable: " + err.Error()
	}
	return ""
}

// keyOf parses a cursor. Missing parts are empty.
func keyOf(text string) pipeline.Key {
	namespace, rest, _ := strings.Cut(text, "/")
	name, key, _ := strings.Cut(rest, "/")
	return pipeline.Key{Namespace: namespace, Name: name, Key: key}
}

func (s *Server) doctorPage(v *visit) (*page, error) {
	ctx, stop := s.deps.Conn.Refusals.CancelOnDenied(v.Context())
	findings, err := operate.Examine(ctx, s.deps.Conn, s.deps.Now)
	stop()
	switch {
	case len(findings) == 0 && err != nil:
		return nil, err
	case err != nil:
		findings = append(findings, operate.Finding{
			Check: "the rest", State: operate.Bad, Detail: "not checked: " + err.Error(),
			Fix: "fix the findings above, and reload this page",
		})
	}
	order := []string{operate.Bad, operate.Warning, operate.Unknown, operate.OK}
	slices.SortStableFunc(findings, func(a, b operate.Finding) int {
		return cmp.Compare(slices.Index(order, a.State), slices.Index(order, b.State))
	})
	bad := 0
	for _, f := range findings {
		if f.State == operate.Bad || f.State == operate.Warning {
			bad++
		}
	}
	return &page{template: "doctor.html", title: "Doctor", data: map[string]any{"Findings": findings, "Bad": bad}}, nil
}

func (s *Server) helpPage(*visit) (*page, error) {
	return &page{template: "help.html", title: "Keyboard", data: navigation()}, nil
}

// search redirects to the failure with an ID, an object, the failures of a host, or the keys of ConfigMaps with a
// name.
func (s *Server) search(v *visit) (*page, error) {
	q := strings.TrimSpace(v.FormValue("q"))
	to := "/failures"
	query := url.Values{}
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

// livePage returns the parts of an open page that change without a reload: the banners, the time, and the number
// of failures that match the filter of the page and are newer than its rows.
func (s *Server) livePage(v *visit) (*page, error) {
	f, err := v.readFilter()
	if err != nil {
		return nil, err
	}
	last := s.lookShortly(v)
	data := map[string]any{"At": f.At("/failures"), "New": 0}
	if above := v.FormValue("failed"); above != "" {
		id, err := strconv.ParseUint(above, 10, 64)
		if err != nil {
			return nil, badRequest(fmt.Errorf("failed: %q is not a number", above))
		}
		found := 0
		for _, x := range last.Streams.Recent {
			if x.ID > id && f.match(x) {
				found++
			}
		}
		data["New"] = found
	}
	return &page{template: "live.html", title: "Live", data: data}, nil
}
