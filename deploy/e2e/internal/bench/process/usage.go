package process

import (
	"errors"
	"fmt"
	"time"
)

// Usage is what a process has used.
type Usage struct {
	// RSS and PeakRSS are the memory that is, and was at most, resident, in
	// bytes.
	RSS     uint64 `json:"rssBytes"`
	PeakRSS uint64 `json:"peakRssBytes"`
	// CPU is the time on a processor since the start.
	CPU time.Duration `json:"-"`
}

// ErrUnknown says that the operating system does not tell what a process uses.
var ErrUnknown = errors.New("usage of processes is known on Linux only")

// Usage returns what the process has used; the error wraps ErrUnknown on other
// systems than Linux.
func (p *Process) Usage() (Usage, error) {
	if err := p.Err(); err != nil {
		return Usage{}, err
	}
	usage, err := read(p.cmd.Process.Pid)
	if err != nil {
		return Usage{}, fmt.Errorf("read what %s uses: %w", p.name, err)
	}
	return usage, nil
}
