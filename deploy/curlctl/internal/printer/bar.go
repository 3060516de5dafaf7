package printer

import (
	"fmt"
	"strings"
	"sync"
	"time"
)

// Bar shows progress on a terminal, and nothing elsewhere.
type Bar struct {
	out  *Printer
	verb string
	all  int
	live bool

	mu    sync.Mutex
	shown time.Time
	width int
}

const barEvery = 50 * time.Millisecond

// Bar returns a bar that counts up to all.
func (p *Printer) Bar(verb string, all int) *Bar {
	return &Bar{out: p, verb: verb, all: all, live: Terminal(p.out)}
}

// Set prints the progress, at most once per barEvery.
func (b *Bar) Set(n int, note string) {
	if !b.live || b.all == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if n < b.all && now.Sub(b.shown) < barEvery {
		return
	}
	b.shown = now
	line := fmt.Sprintf("%s of %s %s", Grouped(n), Grouped(b.all), b.verb)
	if note != "" {
		line += ", " + note
	}
	b.out.Textf("\r%s%s", line, strings.Repeat(" ", max(0, b.width-len(line))))
	b.width = len(line)
}

// End moves to the next line.
func (b *Bar) End() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.width > 0 {
		b.out.Linef("")
	}
	b.width = 0
}
