package usage

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	const status = "Name:\twriter\nVmHWM:\t   46200 kB\nVmRSS:\t   46100 kB\nThreads:\t9\n"
	const stat = "7 (a) b) S 1 7 7 0 -1 4194560 5000 0 0 0 123 45 0 0 20 0 9 0 100 0 0\n"
	for name, test := range map[string]struct {
		status, stat string
		want         Usage
		fails        bool
	}{
		"both files":         {status, stat, Usage{RSS: 46100 << 10, PeakRSS: 46200 << 10, CPU: 1680 * time.Millisecond}, false},
		"a zombie":           {"Name:\twriter\nState:\tZ (zombie)\n", stat, Usage{}, true},
		"no number":          {"VmRSS:\tmany kB\n", stat, Usage{}, true},
		"stat is cut short":  {status, "7 (writer) S 1", Usage{}, true},
		"stat has no number": {status, "7 (writer) S 1 7 7 0 -1 0 0 0 0 0 x 45", Usage{}, true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parse([]byte(test.status), []byte(test.stat))
			if (err != nil) != test.fails {
				t.Fatalf("error %v, want one: %t", err, test.fails)
			}
			if err == nil && got != test.want {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}

func TestOfThisProcess(t *testing.T) {
	got, err := Of(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if got.RSS < 1<<20 || got.PeakRSS < got.RSS/2 {
		t.Errorf("got %+v, want a mebibyte or more", got)
	}
}

func TestPin(t *testing.T) {
	all, err := Processors()
	if err != nil || len(all) == 0 {
		t.Fatalf("got processors %v, %v", all, err)
	}
	sleeper := exec.CommandContext(t.Context(), "sleep", "60")
	sleeper.Dir = t.TempDir()
	if err := sleeper.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sleeper.Wait() }()
	defer func() { _ = sleeper.Process.Kill() }()
	found, err := Running(sleeper.Dir) // which has its name a moment after its start
	for end := time.Now().Add(10 * time.Second); err == nil && found["sleep"] == 0 && time.Now().Before(end); {
		found, err = Running(sleeper.Dir)
	}
	if err != nil || len(found) != 1 || found["sleep"] != sleeper.Process.Pid {
		t.Fatalf("got %v, %v, want sleep with id %d", found, err, sleeper.Process.Pid)
	}
	last := all[len(all)-1]
	if err := Pin(found["sleep"], last); err != nil {
		t.Fatal(err)
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", found["sleep"]))
	if want := fmt.Sprintf("Cpus_allowed_list:\t%d\n", last); err != nil || !strings.Contains(string(status), want) {
		t.Errorf("got %s, %v, want %q", status, err, want)
	}
}
