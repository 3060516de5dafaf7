// Package progress displays the progress of parallel jobs.
package progress

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"
)

const (
	terminalInterval = 200 * time.Millisecond
	logInterval      = 10 * time.Second
	// minEstimated is the share of the work that must be done before the remaining time is estimated.
	minEstimated = 0.02
)

// Control sequences of terminals.
const toStart, clearToEnd = "\r", "\x1b[K"

// Progress displays the current state of its parts. On a terminal, that is one line that is overwritten. Elsewhere,
// such as in CI logs, it is a line per stage and one every ten seconds, even if nothing has changed, so that
// silence means trouble.
type Progress struct {
	out     io.Writer
	columns int // of the terminal, or 0
	started time.Time
	stop    chan struct{}
	stopped sync.WaitGroup

	mu    sync.Mutex
	parts []*Part
}

// Part is the state of one job. Its methods may be called from several goroutines.
type Part struct {
	whole *Progress
	// The mutex of whole guards all other fields.
	stage, line string
	done, total int
	// countedAt is the time of the first count.
	countedAt time.Time
}

// New starts a display on out, which may be nil. Close ends it.
func New(out io.Writer) *Progress { return newProgress(out, columnsOf(out)) }

func columnsOf(out io.Writer) int {
	file, ok := out.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return 0
	}
	width, _, err := term.GetSize(int(file.Fd()))
	if err != nil || width <= 0 {
		return 80
	}
	return width
}

func newProgress(out io.Writer, columns int) *Progress {
	p := &Progress{out: out, columns: columns, started: time.Now(), stop: make(chan struct{})}
	if out == nil {
		p.out = io.Discard
	}
	interval := logInterval
	if columns > 0 {
		interval = terminalInterval
	}
	p.stopped.Go(func() { p.repeat(interval) })
	return p
}

// Part adds a job.
func (p *Progress) Part() *Part {
	p.mu.Lock()
	defer p.mu.Unlock()
	part := &Part{whole: p}
	p.parts = append(p.parts, part)
	return part
}

// Display sets the state of the part. Each format is a stage. The first state of a stage is printed at once, and
// later ones at the next interval.
func (p *Part) Display(format string, args ...any) {
	p.update(format, fmt.Sprintf(format, args...), 0, 0)
}

// Count sets the state of the part to a number of packages, from which the display estimates the remaining time.
func (p *Part) Count(what string, done, total int) {
	p.update(what, fmt.Sprintf("%s: %d of %d packages", what, done, total), done, total)
}

// Note prints a line that stays.
func (p *Part) Note(format string, args ...any) {
	p.whole.mu.Lock()
	defer p.whole.mu.Unlock()
	if p.whole.columns > 0 {
		fmt.Fprint(p.whole.out, toStart, clearToEnd)
	}
	fmt.Fprintf(p.whole.out, format+"\n", args...)
}

func (p *Part) update(stage, line string, done, total int) {
	p.whole.mu.Lock()
	defer p.whole.mu.Unlock()
	if total > 0 && p.total == 0 {
		p.countedAt = time.Now()
	}
	p.line, p.done, p.total = line, done, total
	if p.stage != stage {
		p.stage = stage
		p.whole.render()
	}
}

func (p *Progress) repeat(interval time.Duration) {
	tick := time.NewTicker(interval)
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
}

// render prints the state. The caller holds the mutex.
func (p *Progress) render() {
	var states []string
	for _, part := range p.parts {
		if part.line != "" {
			states = append(states, part.line)
		}
	}
	if len(states) == 0 {
		return
	}
	elapsed := time.Since(p.started).Round(time.Second)
	line := fmt.Sprintf("%s (%s%s)", strings.Join(states, "; "), elapsed, p.estimate())
	if p.columns > 0 {
		line = line[:min(len(line), p.columns-1)] // only a single line can be overwritten
		fmt.Fprint(p.out, toStart, line, clearToEnd)
		return
	}
	fmt.Fprintln(p.out, line)
}

// estimate returns the remaining time at the rate so far, or "" if too little is done. The caller holds the mutex.
func (p *Progress) estimate() string {
	var done, total int
	since := time.Now()
	for _, part := range p.parts {
		if part.total == 0 {
			continue
		}
		done, total = done+part.done, total+part.total
		if part.countedAt.Before(since) {
			since = part.countedAt
		}
	}
	if done == total || float64(done) < minEstimated*float64(total) {
		return ""
	}
	left := time.Duration(float64(time.Since(since)) * float64(total-done) / float64(done))
	if left >= time.Minute {
		return ", about " + strings.TrimSuffix(left.Round(time.Minute).String(), "0s") + " left"
	}
	return ", about " + left.Round(10*time.Second).String() + " left"
}

// Close ends the display. A terminal keeps the last state.
func (p *Progress) Close() {
	close(p.stop)
	p.stopped.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.columns > 0 && len(p.parts) > 0 {
		p.render()
		fmt.Fprintln(p.out)
	}
}
