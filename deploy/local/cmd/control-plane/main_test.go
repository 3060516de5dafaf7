package main

import (
	"os"
	"testing"
)

// TestMain runs the program instead of its specs if they ask for it, which saves to link it once more.
func TestMain(m *testing.M) {
	if os.Getenv("CONTROL_PLANE_PROGRAM") != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}
