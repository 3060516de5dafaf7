package service

import (
	"os"
	"runtime/debug"
)

// LimitGarbage bounds how much garbage there may be beside what is in use, in percent,
// unless GOGC does.
func LimitGarbage(percent int) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
}
