package gobuild

import (
	"os"
	"regexp"
	"testing"
)

// Builds with different flags cannot share the build cache.
func TestAllBuildsOmitDWARF(t *testing.T) {
	t.Parallel()
	flag := regexp.MustCompile(`-gcflags=[^\s",]+`)
	for _, name := range []string{"Makefile", "deploy/docker/Dockerfile"} {
		text, err := os.ReadFile("../../../../" + name)
		if err != nil {
			t.Fatal(err)
		}
		found := flag.FindAllString(string(text), -1)
		if len(found) != 1 || found[0] != NoDWARF {
			t.Errorf("%s has %q, not %s once", name, found, NoDWARF)
		}
	}
}
