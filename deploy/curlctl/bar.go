package curlctl

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
)

// bar shows progress on a terminal; elsewhere nothing.
type bar struct {
	out  io.Writer
	verb string
	all  int
	live bool

	mu    sync.Mutex
	shown time.Time
	width int
}

const (
	barWidth = 30
	barEvery = 50 * time.Millisecond
)

func newBar(out io.Writer, verb string, all int) *bar {
	return &bar{out: out, verb: verb, all: all, live: printer.Terminal(out)}
}

// set draws the bar, unless it was drawn a moment ago.
func (b *bar) set(n int, note string) {
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
	full := barWidth * n / b.all
	line := fmt.Sprintf("[%s%s] %s of %s %s", strings.Repeat("=", full), strings.Repeat(" ", barWidth-full), printer.Grouped(n), printer.Grouped(b.all), b.verb)
	if note != "" {
		line += ", " + note
	}
	pad := max(0, b.width-len(line))
	b.width = len(line)
	fmt.Fprint(b.out, "\r", line, strings.Repeat(" ", pad))
}

// end leaves the line of the bar.
func (b *bar) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.width > 0 {
		fmt.Fprintln(b.out)
	}
	b.width = 0
}
