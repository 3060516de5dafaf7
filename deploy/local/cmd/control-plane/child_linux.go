package main

import "syscall"

// childAttributes end the command if we are killed, because its cluster ends, too.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
}
