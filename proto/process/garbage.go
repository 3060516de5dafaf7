package process

import (
	"os"
	"runtime/debug"
)

// LimitGarbage sets the garbage collector's target percentage, unless GOGC is set.
func LimitGarbage(percent int) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
}
