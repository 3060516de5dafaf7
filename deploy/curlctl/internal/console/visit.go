package console

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/kv8s/curl-me-that/deploy/curlctl/broker"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/fault"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
)

// visit is a request of a person.
type visit struct {
	*http.Request
	server *Server
	// client counts unreadable messages.
	client *broker.Client
}

// page is the response to a visit.
type page struct {
	Title string
	// Command shows the same in a terminal.
	Command string
	// Live is the query of livePage.
	Live url.Values
	// Refresh makes the script update the whole page every two seconds.
	Refresh bool
	Data    any

	template string
	status   int
}

// problem is an error with an HTTP status.
type problem struct {
	status int
	text   string
}

// Error implements error.
func (p *problem) Error() string { return p.text }

func badRequest(err error) *problem { return &problem{http.StatusBadRequest, err.Error()} }

// requestTimeout limits reading for one page, and disconnectedTimeout does so without a connection to NATS.
const (
	requestTimeout      = 20 * time.Second
	disconnectedTimeout = time.Second
)

// visited returns the handler of a page.
func (s *Server) visited(read func(*visit) (*page, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !s.access.allows(w, r) {
			return
		}
		limit := requestTimeout
		if !s.deps.Conn.Conn.IsConnected() {
			limit = disconnectedTimeout
		}
		ctx, cancel := context.WithTimeout(r.Context(), limit)
		defer cancel()
		v := &visit{Request: r.WithContext(ctx), server: s, client: s.deps.Conn.Client.Counting()}
		began := time.Now()
		var p *page
		err := v.ParseForm()
		switch large := (*http.MaxBytesError)(nil); {
		case errors.As(err, &large):
			err = &problem{http.StatusRequestEntityTooLarge, "The form is larger than 64 KiB. Select by filter, not by ID."}
		case err != nil:
			err = badRequest(err)
		default:
			p, err = read(v)
		}
		if err != nil {
			known := s.problemOf(err, began)
			p = &page{
				template: "problem.html", Title: http.StatusText(known.status), status: known.status, Data: known.text,
				Command: "curlctl doctor", Refresh: known.status == http.StatusServiceUnavailable,
			}
		}
		v.write(w, p)
	}
}

// problemOf returns the status and the text for an error.
func (s *Server) problemOf(err error, since time.Time) *problem {
	if known, ok := errors.AsType[*problem](err); ok {
		return known
	}
	var cause error
	if denied := s.deps.Conn.Denials.LastSince(since); denied != nil {
		cause = denied
	}
	kind, err := fault.Of(cause, err)
	text := err.Error()
	switch {
	case kind == fault.NotPermitted:
		text = strings.ToUpper(text[:1]) + text[1:] + "."
	case !s.deps.Conn.Conn.IsConnected():
		kind, text = fault.NoConnection, "Lost the connection to NATS, reconnecting."
	}
	return &problem{kind.Status, text}
}

// destination is a page of the menu. Its keyboard shortcut is g, then the Key.
type destination struct{ Path, Name, Key string }

func navigation() []destination {
	return []destination{
		{"/", "Overview", "o"}, {"/failures", "Failures", "f"}, {"/wants", "Wanted", "w"}, {"/doctor", "Doctor", "d"},
	}
}

// frame is a page with the layout around it.
type frame struct {
	*page

	Path, Person, Server string
	Nav                  []destination
	// Lost means that there is no connection to NATS.
	Lost, MayReplay bool
	Last            reading
	Unread          int
	Now             time.Time
}

func (v *visit) write(w http.ResponseWriter, p *page) {
	s := v.server
	f := frame{
		page: p, Path: v.URL.Path, Person: s.access.name, Server: s.deps.Conn.Where, Nav: navigation(),
		Lost: !s.deps.Conn.Conn.IsConnected(), MayReplay: s.access.mayReplay, Last: s.cache.Last(), Now: s.deps.Now(),
	}
	f.Unread, _ = v.client.Unread.Count()
	var text strings.Builder
	if err := s.templates.ExecuteTemplate(&text, p.template, f); err != nil {
		http.Error(w, "Rendering failed: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	if p.status != 0 {
		w.WriteHeader(p.status)
	}
	_, _ = io.WriteString(w, printer.Escaped(text.String()))
}

//go:embed templates/*.html
var templates embed.FS

//go:embed assets
var assets embed.FS

// parseTemplates parses the templates of all pages. They are part of the program, so they are valid.
func parseTemplates() *template.Template {
	return template.Must(template.New("").Funcs(template.FuncMap{
		"grouped":   printer.Grouped,
		"plural":    printer.Plural,
		"until":     func(now time.Time, at *time.Time) string { return printer.Until(now, *at) },
		"age":       func(now, at time.Time) string { return cmp.Or(printer.Age(now, at), "–") },
		"clock":     func(at time.Time) string { return at.UTC().Format(time.TimeOnly) },
		"text":      func(value any) string { return fmt.Sprint(value) },
		"hasPrefix": strings.HasPrefix,
	}).ParseFS(templates, "templates/*.html"))
}

// table has the rows that a command prints.
type table struct {
	// Opens is the column whose cells link to the page of their row.
	Opens string
	// Select adds a checkbox for the ID of each row.
	Select bool
	Rows   []row
}

type row struct {
	Link, ID string
	Cells    []printer.Cell
}

func (t *table) add(printed printer.Row, link, id string) {
	t.Rows = append(t.Rows, row{Link: link, ID: id, Cells: printed.Cells})
}
