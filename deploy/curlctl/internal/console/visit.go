package console

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
	"github.com/kv8s/curl-me-that/deploy/curlctl/operate"
)

// visit is a request of a person.
type visit struct {
	*http.Request
	server *Server
	w      http.ResponseWriter
	// client counts unreadable messages.
	client *operate.Client
}

// page is the response to a visit: a template with its data, or a redirect.
type page struct {
	template, title string
	status          int
	data            any
	// redirect is the address of a redirect (empty: none).
	redirect string
	// live is the query of livePage.
	live url.Values
	// refresh makes the script update the whole page every two seconds.
	refresh bool
}

// problem is an error with the text of its page.
type problem struct {
	status            int
	title, text, todo string
}

// Error implements error.
func (p *problem) Error() string { return p.title + ": " + p.text }

func badRequest(err error) *problem {
	return &problem{
		http.StatusBadRequest, "Invalid address", err.Error(),
		"Correct the value in the form or in the address.",
	}
}

func notFound(format string, args ...any) *problem {
	return &problem{http.StatusNotFound, "Not found", fmt.Sprintf(format, args...), "Try the search above."}
}

func forbidden(text string) *problem {
	return &problem{
		http.StatusForbidden, "Not permitted", text,
		"Ask for that permission, or use an identity that has it.",
	}
}

// requestTimeout limits reading for one page, and disconnectedTimeout does so without a connection to NATS.
const (
	requestTimeout      = 20 * time.Second
	disconnectedTimeout = time.Second
)

// visited returns the handler of a page.
func (s *Server) visited(read func(*visit) (*page, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !s.deps.Access.allows(w, r) {
			return
		}
		v := &visit{Request: r, server: s, w: w, client: s.deps.Conn.Client.Counting()}
		limit := requestTimeout
		if !s.deps.Conn.Conn.IsConnected() {
			limit = disconnectedTimeout
		}
		ctx, cancel := context.WithTimeout(r.Context(), limit)
		defer cancel()
		v.Request = r.WithContext(ctx)
		refusedSince := time.Now()
		if err := v.ParseForm(); err != nil {
			v.fail(unreadableForm(err), refusedSince)
			return
		}
		p, err := read(v)
		if err != nil {
			v.fail(err, refusedSince)
			return
		}
		v.write(p)
	}
}

// unreadableForm returns the error of a form that is too large or invalid.
func unreadableForm(err error) error {
	if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
		return &problem{
			http.StatusRequestEntityTooLarge, "Form too large", "The form is larger than 64 KiB.",
			"Select by filter, not by ID.",
		}
	}
	return badRequest(err)
}

// mayReplay returns an error if the NATS user may not replay.
func (v *visit) mayReplay() error {
	if v.server.deps.Access.mayReplay {
		return nil
	}
	return forbidden(v.server.deps.Access.name + " may not replay and refetch.")
}

// fail writes the page for an error.
func (v *visit) fail(err error, since time.Time) {
	p := v.server.problemOf(err, since)
	retry := p.status == http.StatusServiceUnavailable
	v.write(&page{template: "problem.html", title: p.title, status: p.status, refresh: retry, data: map[string]any{
		"Text": p.text, "Todo": p.todo,
	}})
}

// problemOf returns the page for an error.
func (s *Server) problemOf(err error, since time.Time) *problem {
	var known *problem
	var forbids *operate.PermissionError
	switch refused := s.deps.Conn.Refusals.Since(since); {
	case errors.As(err, &known):
		return known
	case errors.As(err, &forbids):
		return natsForbids(forbids)
	case refused != nil:
		return natsForbids(refused)
	case !s.deps.Conn.Conn.IsConnected():
		return &problem{
			http.StatusServiceUnavailable, "NATS is unavailable", "Lost the connection to NATS, reconnecting.",
			"Check the server, or the port-forward if there is one. This page reloads by itself.",
		}
	case errors.Is(err, jetstream.ErrStreamNotFound), errors.Is(err, operate.ErrNoConsumer):
		return &problem{
			http.StatusServiceUnavailable, "A stream or consumer is missing", err.Error(),
			"`curlctl setup` creates it, see Doctor.",
		}
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout),
		errors.Is(err, jetstream.ErrNoStreamResponse):
		return &problem{
			http.StatusServiceUnavailable, "NATS does not respond", err.Error(), "Try again. Doctor checks the connection.",
		}
	}
	return &problem{http.StatusBadGateway, "Reading failed", err.Error(), "Try again. Doctor checks NATS."}
}

func natsForbids(e *operate.PermissionError) *problem {
	p := forbidden(capitalized(e) + ".")
	p.todo = "Doctor lists the missing permissions."
	return p
}

// capitalized returns the text of an error, starting with a capital letter.
func capitalized(err error) string {
	text := err.Error()
	return strings.ToUpper(text[:1]) + text[1:]
}

// navigation returns the pages of the menu. Each has a keyboard shortcut: g, then its Key.
func navigation() []destination {
	return []destination{
		{"/", "Overview", "o"},
		{"/failures", "Failures", "f"},
		{"/hosts", "Hosts", "h"},
		{"/wants", "Wanted", "w"},
		{"/doctor", "Doctor", "d"},
	}
}

type destination struct{ Path, Name, Key string }

// frame is the layout around a page.
type frame struct {
	Title, Path, Person, Server string
	Nav                         any
	// Lost means that there is no connection to NATS.
	Lost    bool
	Last    reading
	Live    string
	Refresh bool
	Unread  int
	Now     time.Time
	Page    any
}

func (v *visit) write(p *page) {
	if p.redirect != "" {
		http.Redirect(v.w, v.Request, p.redirect, http.StatusSeeOther)
		return
	}
	var text strings.Builder
	if err := v.server.pages.templates[p.template].ExecuteTemplate(&text, layout, v.frame(p)); err != nil {
		http.Error(v.w, "Rendering failed: "+err.Error(), http.StatusInternalServerError)
		return
	}
	v.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	if p.status != 0 {
		v.w.WriteHeader(p.status)
	}
	_, _ = io.WriteString(v.w, printer.Escaped(text.String()))
}

func (v *visit) frame(p *page) frame {
	f := frame{
		Title: p.title, Path: v.URL.Path, Person: v.server.deps.Access.name,
		Server: v.server.deps.Conn.Where, Nav: navigation(), Refresh: p.refresh, Now: v.server.deps.Now(),
		Page: p.data, Last: v.server.model.Last(),
		Lost: !v.server.deps.Conn.Conn.IsConnected(),
	}
	f.Unread, _ = v.client.Unread.Count()
	f.Live = "/live?" + p.live.Encode()
	return f
}
