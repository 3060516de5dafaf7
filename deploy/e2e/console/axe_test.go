package console_test

import (
	"os"
	"os/exec"
	"path/filepath"

	"github.com/chromedp/chromedp"
	. "github.com/onsi/ginkgo/v2"

	"github.com/kv8s/curl-me-that/proto/suitetest"
)

// accessible returns the script of axe-core, which deploy/tools/axe-core downloads and verifies.
// The spec is skipped if that fails.
func accessible() string {
	GinkgoHelper()
	path := filepath.Join("..", "..", "..", ".cache", "axe-core.js")
	if out, err := exec.Command(filepath.Join("..", "..", "tools", "axe-core"), path).CombinedOutput(); err != nil {
		leaveOut("axe-core cannot be had: " + string(out))
	}
	return string(suitetest.Must(os.ReadFile(path)))
}

// violations returns axe-core's findings for levels A and AA.
func (t *tab) violations(axe string) string {
	GinkgoHelper()
	_ = evaluate(t, axe+";''")
	return evaluate(t, `axe.run({runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa']}).then((r) =>
		r.violations.map((v) => v.id + ': ' +
			v.nodes.map((n) => n.target + ' ' + n.failureSummary).join('; ')).join('\n'))`, chromedp.EvalAwaitPromise)
}
