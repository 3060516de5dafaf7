package assets_test

import (
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
)

func TestAssets(t *testing.T) { suitetest.Run(t, "assets") }

var _ = BeforeSuite(suitetest.ExpectNoLeaks)

// write creates executable files with a shell script.
func write(dir, script string, names ...string) {
	GinkgoHelper()
	Expect(os.MkdirAll(dir, 0o755)).To(Succeed())
	for _, name := range names {
		Expect(os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script), 0o755)).To(Succeed())
	}
}
