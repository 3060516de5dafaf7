package docs_test

import (
	"testing"
	"testing/fstest"

	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/local/internal/docs"
	"github.com/kv8s/curl-me-that/proto/suitetest"
)

func TestDocs(t *testing.T) { suitetest.Run(t, "Docs") }

// tree is a repository of the given files.
func tree(files map[string]string) (fstest.MapFS, []string) {
	t := fstest.MapFS{}
	for name, content := range files {
		t[name] = &fstest.MapFile{Data: []byte(content)}
	}
	names, err := docs.Files(t)
	Expect(err).NotTo(HaveOccurred())
	return t, names
}

// texts returns problems as a person reads them.
func texts(problems []docs.Problem) []string {
	out := make([]string, 0, len(problems))
	for _, p := range problems {
		out = append(out, p.String())
	}
	return out
}
