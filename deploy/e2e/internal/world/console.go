package world

import (
	"context"
	"regexp"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/process"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
)

// Console runs curlctl console until the end of the spec, and returns it with its address for a browser.
func (e *Environment) Console(ctx context.Context, flags ...string) (p *process.Process, address string) {
	GinkgoHelper()
	p = suitetest.Must(process.Start(process.Program{
		Name: "curlctl", Path: e.Program("curlctl"), Args: append([]string{"console"}, flags...),
	}))
	DeferCleanup(p.Kill)
	printed := regexp.MustCompile(`http://\S+`)
	Eventually(ctx, func() string { address = printed.FindString(p.Log.String()); return address }).ShouldNot(BeEmpty())
	return p, address
}
