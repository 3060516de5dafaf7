package process

import (
	"slices"
	"strings"
	"sync"
)

// Log keeps the lines of a process. It is safe for concurrent use.
type Log struct {
	mu    sync.Mutex
	lines []string
	part  []byte // a line without its end
}

// Write takes output of a process.
func (l *Log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range b {
		if c == '\n' {
			l.lines = append(l.lines, string(l.part))
			l.part = l.part[:0]
		} else {
			l.part = append(l.part, c)
		}
	}
	return len(b), nil
}

// Count returns the number of lines.
func (l *Log) Count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.lines)
}

// Lines returns all lines, an unfinished one included.
func (l *Log) Lines() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines := slices.Clone(l.lines)
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

// Matching returns the lines that contain text.
func (l *Log) Matching(text string) []string {
	return slices.DeleteFunc(l.Lines(), func(line string) bool { return !strings.Contains(line, text) })
}

// String returns all lines.
func (l *Log) String() string { return strings.Join(l.Lines(), "\n") }
