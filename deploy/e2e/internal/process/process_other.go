//go:build !linux

package process

import "syscall"

// attributes shield the process from Ctrl-C on the terminal.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
