package controlplane

import "syscall"

// processAttributes keep Ctrl-C on the terminal from reaching the process, since
// the parent decides on the order of the end, and let it die with the parent.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
