package assets_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"go.uber.org/goleak"
)

func TestAssets(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(30 * time.Second)
	RunSpecs(t, "assets")
}

var _ = BeforeSuite(func() {
	before := goleak.IgnoreCurrent()
	DeferCleanup(func() {
		Eventually(func() error { return goleak.Find(before) }).Should(Succeed())
	})
})

// write creates files that can be executed; what they contain is a shell script.
func write(dir, script string, names ...string) {
	GinkgoHelper()
	Expect(os.MkdirAll(dir, 0o755)).To(Succeed())
	for _, name := range names {
		Expect(os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script), 0o755)).To(Succeed())
	}
}
