// Package sharedcall lets callers with the same key share one call, while it runs and for a moment after.
package sharedcall

import (
	"errors"
	"sync"
	"time"
)

// ErrSlow means that a shared call did not end in time, or panicked.
var ErrSlow = errors.New("shared call takes too long")

// Config limits a Group.
type Config struct {
	// Window is how long an outcome is reused after the end of its call.
	Window time.Duration
	// JoinWithin is how long after the start of a call other callers wait for it.
	JoinWithin time.Duration
	// Entries and Bytes limit the outcomes to reuse. The oldest are dropped first.
	Entries int
	Bytes   int64
}

// Result is the outcome of a call.
type Result[V any] struct {
	Value V
	// Size is the memory of the value in bytes.
	Size int64
	// Reuse reports whether calls within the window get the value.
	Reuse bool
}

// Group shares calls by key. It is safe for concurrent use.
type Group[K comparable, V any] struct {
	cfg Config
	now func() time.Time

	mu    sync.Mutex
	calls map[K]*call[K, V]
	kept  []*call[K, V] // by their ends
	bytes int64
}

// call is running until done is closed.
type call[K comparable, V any] struct {
	key   K
	began time.Time
	ended time.Time
	done  chan struct{}
	// ok is false if the call panicked.
	ok    bool
	value V
	size  int64
	// after has the functions to call at the end.
	after []func()
}

// New returns an empty group with a clock.
func New[K comparable, V any](cfg Config, now func() time.Time) *Group[K, V] {
	return &Group[K, V]{cfg: cfg, now: now, calls: map[K]*call[K, V]{}}
}

// Do shares the call for the key that is running or ended within the window, unless it began before notBefore.
// Otherwise it calls fn, and callers that joined an earlier call still get that one's outcome. The error is ErrSlow.
func (g *Group[K, V]) Do(key K, notBefore time.Time, fn func() Result[V]) (value V, shared bool, err error) {
	g.mu.Lock()
	now := g.now()
	g.expire(now)
	if c, ok := g.calls[key]; ok && !c.began.Before(notBefore) {
		kept := !c.ended.IsZero()
		g.mu.Unlock()
		if kept {
			return c.value, true, nil
		}
		select {
		case <-c.done:
			if c.ok {
				return c.value, true, nil
			}
		case <-time.After(c.began.Add(g.cfg.JoinWithin).Sub(now)):
		}
		return value, true, ErrSlow
	}
	c := &call[K, V]{key: key, began: now, done: make(chan struct{})}
	g.calls[key] = c
	g.mu.Unlock()
	var o Result[V]
	returned := false
	defer func() {
		g.end(c, o, returned)
		for _, after := range c.after {
			after()
		}
	}()
	o, returned = fn(), true
	return o.Value, false, nil
}

// After calls fn at the end of the running call for the key, or at once if there is none.
func (g *Group[K, V]) After(key K, fn func()) {
	g.mu.Lock()
	c := g.calls[key]
	running := c != nil && c.ended.IsZero()
	if running {
		c.after = append(c.after, fn)
	}
	g.mu.Unlock()
	if !running {
		fn()
	}
}

// end keeps the outcome of a call for the window.
func (g *Group[K, V]) end(c *call[K, V], o Result[V], returned bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	c.ok, c.value, c.size, c.ended = returned, o.Value, o.Size, g.now()
	close(c.done)
	if !o.Reuse || o.Size > g.cfg.Bytes {
		g.forget(c)
		return
	}
	g.kept = append(g.kept, c)
	g.bytes += c.size
	for len(g.kept) > g.cfg.Entries || g.bytes > g.cfg.Bytes {
		g.drop()
	}
}

// expire drops the outcomes that are older than the window, or from the future, because the clock was set back.
func (g *Group[K, V]) expire(now time.Time) {
	for len(g.kept) > 0 && (now.Sub(g.kept[0].ended) > g.cfg.Window || g.kept[0].ended.After(now)) {
		g.drop()
	}
}

// drop removes the oldest outcome.
func (g *Group[K, V]) drop() {
	oldest := g.kept[0]
	g.kept[0] = nil
	g.kept = g.kept[1:]
	g.bytes -= oldest.size
	g.forget(oldest)
}

// forget removes a call, unless a newer one has replaced it.
func (g *Group[K, V]) forget(c *call[K, V]) {
	if g.calls[c.key] == c {
		delete(g.calls, c.key)
	}
}
