//go:build !linux

package process

import "syscall"

// attributes keep Ctrl-C on the terminal from reaching the process.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
