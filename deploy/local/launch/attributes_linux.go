package launch

import "syscall"

// DieWithParent makes Linux send the process a signal when the thread that started it ends.
func DieWithParent(a *syscall.SysProcAttr, signal syscall.Signal) { a.Pdeathsig = signal }
