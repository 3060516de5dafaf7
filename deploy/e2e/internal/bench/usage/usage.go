// Package usage measures how much memory and processor time a process uses.
package usage

import (
	"errors"
	"fmt"
	"time"
)

// Usage of a process.
type Usage struct {
	// RSS and PeakRSS are the memory that is, and was at most, resident, in
	// bytes.
	RSS     uint64 `json:"rssBytes"`
	PeakRSS uint64 `json:"peakRssBytes"`
	// CPU is the time on a processor since the start.
	CPU time.Duration `json:"-"`
}

// Plus returns what two processes have used together.
func (u Usage) Plus(v Usage) Usage {
	return Usage{RSS: u.RSS + v.RSS, PeakRSS: u.PeakRSS + v.PeakRSS, CPU: u.CPU + v.CPU}
}

// Milliseconds is the unit of a time in figures.
func Milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// ErrUnknown means that the operating system does not report what a process uses.
var ErrUnknown = errors.New("usage and placement of processes are known on Linux only")

// Of returns what a process has used; the error wraps ErrUnknown on other
// systems than Linux.
func Of(pid int) (Usage, error) {
	u, err := read(pid)
	if err != nil {
		return Usage{}, fmt.Errorf("read what process %d uses: %w", pid, err)
	}
	return u, nil
}
