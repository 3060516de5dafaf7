package usage

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"
)

// tick is the unit of CPU times in proc(5). The kernel shows it in hundredths
// of a second to programs, whatever it counts in itself.
const tick = 10 * time.Millisecond

// Fields of /proc/PID/stat behind the name of the program (proc_pid_stat(5)
// counts from 1, with two fields before).
const (
	userTime   = 14 - 3
	systemTime = 15 - 3
)

func read(pid int) (Usage, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return Usage{}, err
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Usage{}, err
	}
	return parse(status, stat)
}

// parse reads the contents of the files status and stat of a process.
func parse(status, stat []byte) (u Usage, err error) {
	if u.RSS, err = kilobytes(status, "VmRSS:"); err != nil {
		return u, err
	}
	if u.PeakRSS, err = kilobytes(status, "VmHWM:"); err != nil {
		return u, err
	}
	// The name is in parentheses and may contain anything.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	for _, field := range []int{userTime, systemTime} {
		if field >= len(fields) {
			return u, fmt.Errorf("stat has %d fields behind the name", len(fields))
		}
		ticks, err := strconv.ParseInt(string(fields[field]), 10, 64)
		if err != nil {
			return u, fmt.Errorf("read stat: %w", err)
		}
		u.CPU += time.Duration(ticks) * tick
	}
	return u, nil
}

// kilobytes returns the value of a line such as "VmRSS:	 1234 kB", in bytes.
func kilobytes(status []byte, name string) (uint64, error) {
	for line := range bytes.Lines(status) {
		value, found := bytes.CutPrefix(line, []byte(name))
		if !found {
			continue
		}
		value = bytes.TrimSpace(bytes.TrimSuffix(bytes.TrimSpace(value), []byte("kB")))
		count, err := strconv.ParseUint(string(value), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read %s %w", name, err)
		}
		return count << 10, nil
	}
	return 0, fmt.Errorf("status has no %s", name)
}
