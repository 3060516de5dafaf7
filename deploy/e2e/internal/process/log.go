package process

import (
	"slices"
	"strings"
	"sync"
)

// Log keeps the output of a process. It is safe for concurrent use.
type Log struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write appends output.
func (l *Log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// String returns all output.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Count returns the number of lines.
func (l *Log) Count() int { return strings.Count(l.String(), "\n") }

// Lines returns all lines, including an unfinished one.
func (l *Log) Lines() (lines []string) {
	for line := range strings.Lines(l.String()) {
		lines = append(lines, strings.TrimSuffix(line, "\n"))
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
