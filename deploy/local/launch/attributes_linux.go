package launch

import "syscall"

// attributes shield the process from Ctrl-C on the terminal, because the parent stops its
// children in order. It dies with the parent.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
