package process

import "syscall"

// attributes shield the process from Ctrl-C on the terminal, and end it with the
// test that started it.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
