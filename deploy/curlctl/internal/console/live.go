package console

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/overview"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// tick is sent to an open page each second. It has at most maxTick bytes.
type tick struct {
	AsOf   string `json:"asOf"`
	Lost   bool   `json:"lost"`
	Paused bool   `json:"paused"`
	// State is the class of the headline.
	State   string            `json:"state"`
	Numbers map[string]string `json:"numbers"`
	Sparks  map[string]string `json:"sparks,omitempty"`
	New     int               `json:"new"`
	Passing [][3]string       `json:"passing,omitempty"`
}

const (
	maxTick   = 2 << 10
	tickEvery = time.Second
	// writeTimeout ends the stream of a client that does not read.
	writeTimeout = 10 * time.Second
	// passingText is the maximum length of a message, in runes.
	passingText = 70
)

// live sends a tick each second, until the page is closed.
func (s *Server) live(v *visit) (*page, error) {
	at, err := v.position()
	if err != nil {
		return nil, err
	}
	leave, err := s.viewers.enter(v.person.Name)
	if err != nil {
		return nil, err
	}
	defer leave()
	v.w.Header().Set("Content-Type", "text/event-stream")
	v.w.Header().Set("X-Accel-Buffering", "no") // against buffering in proxies
	control := http.NewResponseController(v.w)
	_ = control.SetReadDeadline(time.Time{})
	ticker := time.NewTicker(tickEvery)
	defer ticker.Stop()
	for v.mayStay() {
		s.model.Touch()
		t := s.tick(v.namespace)
		if v.FormValue("failed") != "" {
			t.New = s.model.FailedSince(at.failed, at.filter.match)
		}
		if v.FormValue("entries") != "" {
			t.Passing, at.entries = s.passing(v.namespace, at.entries)
		}
		_ = control.SetWriteDeadline(time.Now().Add(writeTimeout))
		_, err := fmt.Fprintf(v.w, "retry: %d\nid: %d\ndata: %s\n\n", tickEvery.Milliseconds(), at.entries, t.encode())
		if err != nil || control.Flush() != nil {
			return &page{done: true}, nil
		}
		select {
		case <-v.Context().Done():
			return &page{done: true}, nil
		case <-s.ended.Done():
			return &page{done: true}, nil
		case <-ticker.C:
		}
	}
	return &page{done: true}, nil
}

// position is how far an open page has read.
type position struct {
	filter filter
	// failed is the newest failure on it, and entries the number of messages so far.
	failed, entries uint64
}

// position parses the address of a live stream.
func (v *visit) position() (p position, err error) {
	if p.filter, err = v.readFilter(); err != nil {
		return p, err
	}
	if p.failed, err = number("failed", v.FormValue("failed")); err != nil {
		return p, err
	}
	// After a reconnect, the ID of the last tick is newer than the address.
	p.entries, err = number("entries", cmp.Or(v.Header.Get("Last-Event-ID"), v.FormValue("entries")))
	return p, err
}

// Maximum numbers of live pages, in all and per person.
const (
	maxViewers     = 50
	maxViewersEach = 10
)

// viewers counts the live pages of each person. The zero value is ready.
type viewers struct {
	mu    sync.Mutex
	pages map[string]int
}

// enter counts a page of a person until leave is called.
func (w *viewers) enter(person string) (leave func(), err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	open := 0
	for _, n := range w.pages {
		open += n
	}
	switch {
	case w.pages[person] >= maxViewersEach:
		return nil, tooMany("You have " + strconv.Itoa(maxViewersEach) + " live pages open.")
	case open >= maxViewers:
		return nil, tooMany(strconv.Itoa(maxViewers) + " live pages are open.")
	case w.pages == nil:
		w.pages = map[string]int{}
	}
	w.pages[person]++
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.pages[person]--; w.pages[person] == 0 {
			delete(w.pages, person)
		}
	}, nil
}

func tooMany(text string) *problem {
	return &problem{http.StatusServiceUnavailable, "Too many live pages", text, "Close one."}
}

// mayStay reports whether the person may keep the page open. If the API server is unavailable, the
// previous decision holds.
func (v *visit) mayStay() bool {
	if until := v.person.Until; !until.IsZero() && !v.server.deps.Now().Before(until) {
		return false
	}
	var denied *problem
	return !errors.As(v.enter(), &denied) || denied.status >= http.StatusInternalServerError
}

// encode drops messages until the tick is small enough.
func (t *tick) encode() []byte {
	for {
		text, err := json.Marshal(t)
		if err != nil || len(text) <= maxTick || len(t.Passing) == 0 {
			return text
		}
		t.Passing = t.Passing[:len(t.Passing)-1]
	}
}

func (s *Server) tick(namespace string) tick {
	n := s.model.Numbers(namespace)
	now := s.deps.Now()
	t := tick{
		AsOf: clockOf(now), Lost: !s.lostSince().IsZero(), Paused: n.Paused, State: n.Word(),
		Numbers: map[string]string{
			"wants": printer.Grouped(n.Now.Keys), "headline": n.Headline(now).Text, "timers": printer.Grouped(n.Timers.Pending),
			"minute": printer.Grouped(n.Timers.Minute), "overdue": printer.Grouped(n.Timers.Overdue),
			"lastHour": printer.Grouped(n.LastHour), "failing": printer.Grouped(n.Now.Failing + n.Now.Refused),
		},
	}
	if n.Timers.Next != nil {
		t.Numbers["next"] = printer.Until(now, *n.Timers.Next)
	}
	if namespace != "" {
		return t
	}
	t.Numbers["failures"] = printer.Grouped(n.Failures)
	t.Sparks = map[string]string{}
	for name, drawn := range sparks(n) {
		t.Sparks[name], t.Numbers[name+".peak"] = drawn.Points, printer.Grouped(drawn.Peak)
	}
	for prefix, c := range map[string]overview.Consumer{
		"requests": durable(n, pipeline.FetcherConsumer), "results": durable(n, pipeline.WriterConsumer),
	} {
		t.Numbers[prefix+".backlog"] = printer.Grouped(int(c.Backlog))
		t.Numbers[prefix+".inFlight"] = printer.Grouped(c.InFlight)
		t.Numbers[prefix+".oldest"] = oldest(c, now)
	}
	return t
}

func oldest(c overview.Consumer, now time.Time) string {
	if c.Oldest.IsZero() {
		return "–"
	}
	return printer.Until(c.Oldest, now)
}

// passing returns the messages since the last tick, and the new position.
func (s *Server) passing(namespace string, last uint64) ([][3]string, uint64) {
	entries, now := s.model.Passing(namespace, last)
	var rows [][3]string
	for _, e := range entries {
		detail := e.Namespace + "/" + e.ConfigMap + "/" + e.Key
		if e.Detail != "" {
			detail += " · " + e.Detail
		}
		rows = append(rows, [3]string{clockOf(e.At), e.What, cut(string(visible([]byte(detail))), passingText)})
	}
	if len(rows) > passingRows {
		rows = rows[len(rows)-passingRows:]
	}
	return rows, now
}

func clockOf(at time.Time) string { return at.UTC().Format(time.TimeOnly) }

func cut(text string, most int) string {
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return text
}
