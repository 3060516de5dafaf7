package main_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega/gexec"

	"github.com/kv8s/curl-me-that/deploy/local/controlplane"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
)

func TestCommand(t *testing.T) { suitetest.Run(t, "command control-plane") }

var (
	binary   string
	binaries controlplane.Programs
)

var _ = BeforeSuite(func(ctx SpecContext) {
	binaries = suitetest.Must(controlplane.FindPrograms(ctx, controlplane.ProgramOptions{Progress: GinkgoWriter}))
	binary = suitetest.Must(gexec.BuildWithEnvironment("github.com/kv8s/curl-me-that/deploy/local/cmd/control-plane",
		[]string{"CGO_ENABLED=0"}))
	DeferCleanup(gexec.CleanupBuildArtifacts)
})

// run starts the command without KUBECONFIG, and with the binaries of the suite. The variables take precedence.
func run(variables []string, args ...string) *gexec.Session {
	GinkgoHelper()
	command := exec.Command(binary, args...)
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "KUBECONFIG=") {
			command.Env = append(command.Env, variable)
		}
	}
	command.Env = append(command.Env, controlplane.EnvDir+"="+binaries.Dir)
	command.Env = append(command.Env, variables...)
	session := suitetest.Must(gexec.Start(command, GinkgoWriter, GinkgoWriter))
	DeferCleanup(func() { session.Kill().Wait() })
	return session
}

// running reports whether the command line of any process contains the text.
func running(text string) bool {
	GinkgoHelper()
	output := suitetest.Must(exec.Command("ps", "-axww", "-o", "command=").Output())
	return strings.Contains(string(output), text)
}
