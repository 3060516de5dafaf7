//go:build !linux

package launch

import "syscall"

// attributes shield the process from Ctrl-C on the terminal, since
// the parent decides on the order of the end. Only Linux can let it die with the
// parent.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
