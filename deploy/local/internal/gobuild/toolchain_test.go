package gobuild

import (
	"cmp"
	"os"
	"os/exec"
	"slices"
	"testing"
)

func TestIsPackage(t *testing.T) {
	for line, want := range map[string]bool{
		"k8s.io/api/core/v1":                 true,
		"net":                                true,
		"":                                   false,
		"# k8s.io/api/core/v1":               false,
		"go: downloading k8s.io/api v0.36.3": false,
		"types.go:1:1: undefined: x":         false,
		"go: module lookup disabled by GOPROXY=off":   false,
		"\tvendor/golang.org/x/net is not a package ": false,
	} {
		if got := isPackage(line); got != want {
			t.Errorf("isPackage(%q) = %v", line, got)
		}
	}
}

func TestBuildsCollectLessGarbageUnlessGOGCIsSet(t *testing.T) {
	t.Setenv("GOGC", "50") // also restores the variable after this test
	for _, own := range []string{"", "GOGC=50"} {
		if own == "" {
			if err := os.Unsetenv("GOGC"); err != nil {
				t.Fatal(err)
			}
		} else {
			t.Setenv("GOGC", "50")
		}
		cmd := exec.Cmd{Env: Environ()}
		if want := cmp.Or(own, lessGC); !slices.Contains(cmd.Environ(), want) {
			t.Errorf("with %q in the environment there is no %s", own, want)
		}
	}
}
