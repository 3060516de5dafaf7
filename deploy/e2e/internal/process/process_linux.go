package process

import "syscall"

// attributes keep Ctrl-C on the terminal from reaching the process, and let it
// die with the test that started it.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
