package controlplane

import (
	"io"
	"os"
	"strings"
)

const (
	logWindow  = 8 << 10 // bytes from the end of a log in which the last line is looked for
	lineLength = 400     // bytes shown of it
)

// lastLine returns the last line of a log that is not empty, from the offset
// start on. It is for an error message: that it cannot be read is part of the text,
// not an error.
func lastLine(path string, start int64) string {
	file, err := os.Open(path)
	if err != nil {
		return err.Error()
	}
	defer file.Close()
	if info, err := file.Stat(); err == nil {
		start = max(start, info.Size()-logWindow)
	}
	text, err := io.ReadAll(io.NewSectionReader(file, start, logWindow))
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	last := strings.TrimSpace(lines[len(lines)-1])
	if last == "" {
		return "it logged nothing"
	}
	if len(last) > lineLength {
		last = strings.ToValidUTF8(last[:lineLength], "") + "…"
	}
	return last
}
