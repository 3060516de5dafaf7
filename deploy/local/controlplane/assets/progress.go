package assets

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/term"
	"k8s.io/utils/clock"
)

const (
	terminalInterval = 200 * time.Millisecond
	logInterval      = 10 * time.Second
)

// progress shows the present state of a long job: on a terminal as one line that
// is written over, elsewhere (CI logs) as a line per stage and one every ten
// seconds, also when nothing changed, so that silence means trouble.
type progress struct {
	out      io.Writer
	terminal bool
	clock    clock.WithTicker
	started  time.Time
	stop     chan struct{}
	stopped  sync.WaitGroup

	mu    sync.Mutex
	stage string
	line  string
}

func newProgress(out io.Writer, clock clock.WithTicker) *progress {
	p := &progress{out: out, clock: clock, started: clock.Now(), stop: make(chan struct{})}
	if out == nil {
		p.out = io.Discard
	}
	if file, ok := out.(*os.File); ok {
		p.terminal = term.IsTerminal(int(file.Fd()))
	}
	interval := logInterval
	if p.terminal {
		interval = terminalInterval
	}
	tick := clock.NewTicker(interval)
	p.stopped.Go(func() { p.repeat(tick) })
	return p
}

// state changes the state. Each format is a stage, whose first state is printed
// at once, the others when their time has come.
func (p *progress) state(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.line = fmt.Sprintf(format, args...)
	if p.stage != format {
		p.stage = format
		p.print()
	}
}

func (p *progress) repeat(tick clock.Ticker) {
	defer tick.Stop()
	for {
		select {
		case <-tick.C():
			p.mu.Lock()
			p.print()
			p.mu.Unlock()
		case <-p.stop:
			return
		}
	}
}

// print needs the mutex.
func (p *progress) print() {
	if p.line == "" {
		return
	}
	elapsed := p.clock.Since(p.started).Round(time.Second)
	if p.terminal {
		const toStart, clearToEnd = "\r", "\x1b[K"
		fmt.Fprintf(p.out, "%s%s (%s)%s", toStart, p.line, elapsed, clearToEnd)
		return
	}
	fmt.Fprintf(p.out, "%s (%s)\n", p.line, elapsed)
}

// close ends the line of a terminal with the last state.
func (p *progress) close() {
	close(p.stop)
	p.stopped.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.terminal && p.line != "" {
		p.print()
		fmt.Fprintln(p.out)
	}
}
