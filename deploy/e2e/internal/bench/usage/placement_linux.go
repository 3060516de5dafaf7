package usage

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

func running(dir string) (map[string]int, error) {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil, err
	}
	folders, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, err
	}
	found := map[string]int{}
	for _, folder := range folders {
		// A process that has ended meanwhile, or is of another user, has neither.
		cwd, errCwd := os.Readlink(filepath.Join(folder, "cwd"))
		name, errName := os.ReadFile(filepath.Join(folder, "comm"))
		if pid, err := strconv.Atoi(filepath.Base(folder)); err == nil && errCwd == nil && errName == nil && cwd == dir {
			found[strings.TrimSpace(string(name))] = pid
		}
	}
	return found, nil
}

func processors() ([]int, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, err
	}
	var list []int
	for n := 0; len(list) < set.Count(); n++ {
		if set.IsSet(n) {
			list = append(list, n)
		}
	}
	return list, nil
}

// pin goes through the threads until there is none that it has not seen: one that
// is begun meanwhile has the processors of the thread that began it.
func pin(pid int, on []int) error {
	var set unix.CPUSet
	for _, n := range on {
		set.Set(n)
	}
	seen := map[int]bool{}
	for before := -1; len(seen) > before; {
		before = len(seen)
		threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		if err != nil {
			return err
		}
		for _, thread := range threads {
			id, err := strconv.Atoi(thread.Name())
			if err != nil || seen[id] {
				continue
			}
			seen[id] = true
			if err := unix.SchedSetaffinity(id, &set); err != nil && err != unix.ESRCH { // it has ended
				return err
			}
		}
	}
	return nil
}
