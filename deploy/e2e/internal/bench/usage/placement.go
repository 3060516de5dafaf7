package usage

import "fmt"

// Running returns the ids of the processes whose working directory is dir, by the
// name of their program; the error wraps ErrUnknown on other systems than Linux.
func Running(dir string) (map[string]int, error) {
	found, err := running(dir)
	if err != nil {
		return nil, fmt.Errorf("look for processes in %s: %w", dir, err)
	}
	return found, nil
}

// Processors returns the numbers of those that this process may run on; the error
// wraps ErrUnknown on other systems than Linux.
func Processors() ([]int, error) {
	list, err := processors()
	if err != nil {
		return nil, fmt.Errorf("count the processors: %w", err)
	}
	return list, nil
}

// Pin lets a process run on these processors only, with all threads and processes
// that it begins from now on. The error wraps ErrUnknown on other systems than
// Linux.
func Pin(pid int, processors ...int) error {
	if err := pin(pid, processors); err != nil {
		return fmt.Errorf("let process %d run on processors %v: %w", pid, processors, err)
	}
	return nil
}
