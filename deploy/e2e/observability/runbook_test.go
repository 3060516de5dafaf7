package observability_test

import (
	"context"
	"os"
	"os/exec"
	"path"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/proto/suitetest"
)

// runbook returns the page that an alert links to.
func runbook(alert string) string {
	GinkgoHelper()
	rule := suitetest.Must(rules.Alert(alert))
	return string(suitetest.Must(os.ReadFile("../../runbooks/" + path.Base(rule.Annotations["runbook_url"]))))
}

// leads follows the runbook of an alert: the runbook has a curlctl command, and its output shows
// the cause.
func leads(ctx context.Context, w *world.World, alert, command string, cause types.GomegaMatcher) {
	GinkgoHelper()
	Expect(runbook(alert)).To(ContainSubstring("$ curlctl " + command))
	Eventually(ctx, func() string {
		args := append(strings.Fields(command), "--nats-url="+w.Broker())
		if command != "doctor" { // other suites have ConfigMaps in the same API server
			args = append(args, "--namespace="+w.Namespace)
		}
		said, _ := exec.CommandContext(ctx, env.Program("curlctl"), args...).CombinedOutput()
		return string(said)
	}).Should(cause)
}

// tells follows the runbook of an alert: the runbook quotes a log message, and the service has
// logged it with the cause.
func tells(s *world.Service, alert, message, cause string) {
	GinkgoHelper()
	Expect(runbook(alert)).To(ContainSubstring(message))
	Eventually(func() []string { return s.Log.Matching(message) }).Should(ContainElement(ContainSubstring(cause)))
}
