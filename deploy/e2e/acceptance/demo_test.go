package acceptance_test

import (
	"context"
	"net/http"
	"net/http/cookiejar"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"github.com/onsi/gomega/types"

	"github.com/kv8s/curl-me-that/proto/suitetest"
)

// fits checks that the output fits the narrowest terminal, 80 columns.
func fits() types.GomegaMatcher {
	return WithTransform(func(line string) int { return len(line) }, BeNumerically("<=", 80))
}

var _ = Describe("The demo", func() {
	It("runs all chapters without kubectl and ends", func(ctx SpecContext) {
		cmd := demo(ctx, GinkgoT().TempDir(), "--once")
		out, err := cmd.CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(out))
		Expect(string(out)).To(MatchRegexp(`(?s)1\. .*joke: \|\n {4}\S.*` +
			`2\. .*InvalidAnnotation.*does not match expected format\s+key=url.*` +
			`3\. .*ctl failures .*ConnectFailed.*curl-me-that-down.*` +
			`4\. .*ctl replay .*1 fetched.*joke: \|\n {4}\S.*` +
			`5\. .*kind: Watcher.*\nNAME +READY +FRESH +FETCHED .*\n\S+ +True +True +1/1 ` +
			`+watched-config .*joke: \|\n {4}\S.*` +
			`To see the same in a browser:\n\n\$ ` + regexp.QuoteMeta(cmd.Path) + ` demo\n$`))
		Expect(string(out)).NotTo(ContainSubstring("$ kubectl"), "no kubectl is installed")
		// a table fits where there is a terminal
		aPathOrTable := Or(ContainSubstring(os.TempDir()), MatchRegexp(`^(ID|\d+) `))
		Expect(strings.Split(string(out), "\n")).To(HaveEach(Or(aPathOrTable, fits())))
	})

	It("prints the installed kubectl, and serves the console until interrupted", func(ctx SpecContext) {
		path := GinkgoT().TempDir()
		Expect(os.WriteFile(filepath.Join(path, "kubectl"), nil, 0o700)).To(Succeed())
		cmd, out := demo(ctx, path), gbytes.NewBuffer()
		cmd.Stdout, cmd.Stderr = out, out
		Expect(cmd.Start()).To(Succeed())
		DeferCleanup(func() {
			if cmd.ProcessState == nil {
				_ = cmd.Process.Signal(os.Interrupt) // the demo shuts down
				_ = cmd.Wait()
			}
		})
		address := regexp.MustCompile(`The console of nats://\S+ is at (http://\S+)`)
		Eventually(ctx, out).WithTimeout(2 * time.Minute).Should(gbytes.Say(address.String()))
		Expect(string(out.Contents())).To(ContainSubstring("\n  kubectl=" + filepath.Join(path, "kubectl") + "\n"))
		at := address.FindStringSubmatch(string(out.Contents()))[1]
		jar := suitetest.Must(cookiejar.New(nil))
		person := &http.Client{Jar: jar}
		r := suitetest.Must(person.Get(at))
		Expect(r.Body.Close()).To(Succeed())
		Expect(r.StatusCode).To(Equal(http.StatusOK))
		Expect(cmd.Process.Signal(os.Interrupt)).To(Succeed())
		Expect(cmd.Wait()).To(Succeed(), string(out.Contents()))
		_, err := person.Get(at)
		Expect(err).To(MatchError(syscall.ECONNREFUSED))
	})
})

// demo starts the demo of the all-in-one with a PATH of one folder.
func demo(ctx context.Context, path string, args ...string) *exec.Cmd {
	GinkgoHelper()
	if os.Getenv("KUBEBUILDER_ASSETS") == "" || runtime.GOOS != "linux" {
		Skip("it has a control plane of its own, and servers on 127.0.0.2, where a demo of yours does not listen")
	}
	cmd := exec.CommandContext(ctx, env.Program(allInOne),
		append([]string{"demo", "--host=127.0.0.2", "--samples=../../samples"}, args...)...)
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(variable string) bool {
		return strings.HasPrefix(variable, "KUBECONFIG=") || strings.HasPrefix(variable, "PATH=")
	}), "PATH="+path)
	return cmd
}
