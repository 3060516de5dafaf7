//go:build !linux

package launch

import "syscall"

// DieWithParent does nothing: only Linux can let a process die with its parent.
func DieWithParent(*syscall.SysProcAttr, syscall.Signal) {}
