package acceptance_test

import (
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
)

// fits: the narrowest terminal has 80 columns.
func fits() types.GomegaMatcher {
	return WithTransform(func(line string) int { return len(line) }, BeNumerically("<=", 80))
}

var _ = Describe("The demo", func() {
	It("goes through its chapters without kubectl, and ends", func(ctx SpecContext) {
		assets := os.Getenv("KUBEBUILDER_ASSETS")
		if assets == "" || runtime.GOOS != "linux" {
			Skip("it has a control plane of its own, and servers on 127.0.0.2, where a demo of yours does not listen")
		}
		cmd := exec.CommandContext(ctx, env.Program(allInOne), "demo", "--once", "--host=127.0.0.2", "--samples=../../samples")
		cmd.Env = append(slices.DeleteFunc(os.Environ(), func(variable string) bool {
			return strings.HasPrefix(variable, "KUBECONFIG=") || strings.HasPrefix(variable, "PATH=")
		}), "PATH="+GinkgoT().TempDir())
		out, err := cmd.CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(out))
		Expect(string(out)).To(MatchRegexp(`(?s)1\. .*joke: \|\n {4}\S.*` +
			`2\. .*InvalidAnnotation.*does not match expected format\s+key=url.*` +
			`3\. .*ctl failures .*ConnectFailed.*curl-me-that-down.*` +
			`4\. .*ctl replay .*1 fetched.*joke: \|\n {4}\S.*` +
			`5\. .*kind: Watcher.*\nNAME +READY +FRESH +FETCHED .*\n\S+ +True +True +1/1 +curl-me-that-joke-config .*joke: \|\n {4}\S`))
		aPathOrTable := Or(ContainSubstring(os.TempDir()), MatchRegexp(`^(ID|\d+) `)) // a table fits where there is a terminal
		Expect(strings.Split(string(out), "\n")).To(HaveEach(Or(aPathOrTable, fits())))
	})
})
