package controlplane

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/term"
)

// progressInterval is the time between lines of a log that show the same stage, so that silence means trouble.
const progressInterval = 10 * time.Second

// progress displays the state of a job: on a terminal in one line that is overwritten, elsewhere in a line per stage
// and one every ten seconds.
type progress struct {
	out      io.Writer
	terminal bool
	started  time.Time
	stop     chan struct{}
	stopped  sync.WaitGroup

	mu          sync.Mutex
	stage, line string
}

// newProgress starts a display on out, which may be nil. Its method close ends it.
func newProgress(out io.Writer) *progress {
	p := &progress{out: out, started: time.Now(), stop: make(chan struct{})}
	if out == nil {
		p.out = io.Discard
	}
	file, is := out.(*os.File)
	p.terminal = is && term.IsTerminal(int(file.Fd()))
	p.stopped.Go(func() {
		tick := time.NewTicker(progressInterval)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				p.mu.Lock()
				p.render()
				p.mu.Unlock()
			case <-p.stop:
				return
			}
		}
	})
	return p
}

// show sets the state. Each format is a stage, whose first state a log has at once.
func (p *progress) show(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	news := p.stage != format
	p.stage, p.line = format, fmt.Sprintf(format, args...)
	if news || p.terminal {
		p.render()
	}
}

// note prints a line that stays.
func (p *progress) note(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.terminal {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
	fmt.Fprintf(p.out, format+"\n", args...)
}

// render prints the state. The caller holds the mutex.
func (p *progress) render() {
	if p.line == "" {
		return
	}
	line := fmt.Sprintf("%s (%s)", p.line, time.Since(p.started).Round(time.Second))
	if p.terminal {
		fmt.Fprint(p.out, "\r", line, "\x1b[K")
		return
	}
	fmt.Fprintln(p.out, line)
}

// close ends the display. A terminal keeps the last state.
func (p *progress) close() {
	close(p.stop)
	p.stopped.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.terminal && p.line != "" {
		fmt.Fprintln(p.out)
	}
}
