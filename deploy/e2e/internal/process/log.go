package process

import (
	"fmt"
	"strings"
	"sync"
)

const (
	// headLines and tailLines are how much of a log is kept: the start, where
	// the first fault shows, and the end.
	headLines = 200
	tailLines = 2000
	// maxLine bounds a line, in bytes.
	maxLine = 8 << 10
)

// Log keeps the first and last lines of a process. It is safe for concurrent use.
type Log struct {
	mu    sync.Mutex
	head  []string
	tail  []string // a ring once it is full
	next  int      // where the next line goes in the ring
	count int
	part  []byte // a line without its end
}

func newLog() *Log { return &Log{} }

// Write takes output of a process.
func (l *Log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range b {
		if c == '\n' {
			l.add(string(l.part))
			l.part = l.part[:0]
		} else if len(l.part) < maxLine {
			l.part = append(l.part, c)
		}
	}
	return len(b), nil
}

func (l *Log) add(line string) {
	l.count++
	switch {
	case len(l.head) < headLines:
		l.head = append(l.head, line)
	case len(l.tail) < tailLines:
		l.tail = append(l.tail, line)
	default:
		l.tail[l.next] = line
		l.next = (l.next + 1) % tailLines
	}
}

// Count returns the total number of lines.
func (l *Log) Count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.count
}

// Lines returns the lines that were kept, an unfinished one included.
func (l *Log) Lines() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines := append([]string{}, l.head...)
	if dropped := l.count - len(l.head) - len(l.tail); dropped > 0 {
		lines = append(lines, fmt.Sprintf("… %d lines left out …", dropped))
	}
	lines = append(lines, l.tail[l.next:]...)
	lines = append(lines, l.tail[:l.next]...)
	if len(l.part) > 0 {
		lines = append(lines, string(l.part))
	}
	return lines
}

// Last returns the last line.
func (l *Log) Last() string {
	lines := l.Lines()
	if len(lines) == 0 {
		return "(empty log)"
	}
	return lines[len(lines)-1]
}

// Matching returns the kept lines that contain text.
func (l *Log) Matching(text string) []string {
	var found []string
	for _, line := range l.Lines() {
		if strings.Contains(line, text) {
			found = append(found, line)
		}
	}
	return found
}

// String returns the kept lines.
func (l *Log) String() string { return strings.Join(l.Lines(), "\n") }
