package main

import "syscall"

// childAttributes end the command when we are killed, since its cluster goes too.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
}
