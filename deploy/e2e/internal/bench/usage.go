package bench

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"github.com/prometheus/procfs"
)

// usages maps the names of programs to their CPU time since the start, in seconds.
type usages map[string]float64

// add adds the usage of a process. Without /proc, which only Linux has, all figures of CPU time are missing.
func (u usages) add(name string, pid int) {
	if runtime.GOOS != "linux" {
		return
	}
	u[name] += must(must(procfs.NewProc(pid)).Stat()).CPUTime()
}

// cpuSince returns the milliseconds of CPU time per item for each program, given the number of items. A program
// that was not in before started at zero.
func (u usages) cpuSince(before usages, count int) map[string]float64 {
	cpu := map[string]float64{}
	for name, used := range u {
		cpu[name] = 1000 * (used - before[name]) / float64(max(count, 1))
	}
	return cpu
}

// controlPlane returns the processes of `bin/control-plane` on this machine. They run in the folder of the
// kubeconfig.
func controlPlane() map[string]int {
	found := map[string]int{}
	processes, _ := procfs.AllProcs() // none without /proc
	dir, _ := filepath.EvalSymlinks(filepath.Dir(os.Getenv("KUBECONFIG")))
	for _, process := range processes {
		name, errName := process.Comm()
		cwd, errCwd := process.Cwd() // fails for processes of other users
		if errors.Join(errName, errCwd) == nil && cwd == dir && (name == "etcd" || name == "kube-apiserver") {
			found[name] = process.PID
		}
	}
	return found
}

// self is the name of the benchmark itself.
const self = "bench"

func ownUsage() usages {
	own := usages{}
	own.add(self, os.Getpid())
	return own
}

// sum adds the usage of the named programs, or of all if there are no names.
func sum(cpu map[string]float64, names ...string) (total float64) {
	for name, used := range cpu {
		if len(names) == 0 || slices.Contains(names, name) {
			total += used
		}
	}
	return total
}
