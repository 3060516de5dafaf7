// Package console drives the web console of curlctl in Chromium: by mouse, by keyboard, in both themes, with
// hostile values and without the broker.
package console_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
)

func TestConsole(t *testing.T) { world.Run(t, "Console") }

var (
	env     *world.Environment
	browser context.Context
)

var _ = BeforeSuite(func() {
	path := chromium()
	if path == "" {
		skip("no Chromium found: `deploy/tools/chromium` installs Debian's, or set CHROMIUM")
	}
	env = world.Open()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox,
		chromedp.Flag("disable-lcd-text", true), chromedp.WindowSize(1280, 800),
		chromedp.WSURLReadTimeout(2*time.Minute)) // slow to start on a busy machine
	allocator, cancel := chromedp.NewExecAllocator(context.Background(), options...)
	DeferCleanup(cancel)
	var end context.CancelFunc
	browser, end = chromedp.NewContext(allocator) //nolint:fatcontext // it is set once
	DeferCleanup(end)
	Expect(chromedp.Do(browser)).To(Succeed())
})

// skip skips the current spec and adds the reason to the report. Skip alone shows it only in verbose reports.
func skip(why string) {
	GinkgoHelper()
	AddReportEntry("skipped", why)
	Skip(why)
}

// chromium returns the path of Chromium, or "" if there is none.
func chromium() string {
	if path := os.Getenv("CHROMIUM"); path != "" {
		return path
	}
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

// open runs `curlctl console` until the end of the spec and returns the sign-in address.
func open(ctx context.Context, broker string, flags ...string) string {
	GinkgoHelper()
	_, address := env.Console(ctx, append(flags, "--nats-url="+broker)...)
	return address
}

// tab is a page in the browser.
type tab struct {
	ctx  context.Context //nolint:containedctx // chromedp finds the page by its context
	base string

	mu       sync.Mutex
	problems []string
}

// newTab opens an address. Any error that the browser reports about the page, such as a violation
// of the Content-Security-Policy, fails the spec.
func newTab(address string) *tab {
	GinkgoHelper()
	ctx, cancel := chromedp.NewContext(browser)
	DeferCleanup(cancel)
	t := &tab{ctx: ctx, base: regexp.MustCompile(`^http://[^/]+`).FindString(address)}
	Expect(chromedp.Do(ctx)).To(Succeed())
	logged, thrown := chromedp.Events(ctx, log.EntryAdded), chromedp.Events(ctx, runtime.ExceptionThrown)
	go func() {
		for e, err := range logged {
			// Responses with 404 or 503 are expected, and the browser reports clicks before the focus is set.
			if err == nil && e.Entry.Source != "network" && e.Entry.Level != "info" {
				t.report(e.Entry.Text)
			}
		}
	}()
	go func() {
		for e, err := range thrown {
			if err == nil {
				t.report(e.ExceptionDetails.Text)
			}
		}
	}()
	t.do(chromedp.Navigate(address), chromedp.WaitReady(chromedp.CSS("main")))
	DeferCleanup(func() {
		if CurrentSpecReport().Failed() {
			t.keepPicture()
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		Expect(t.problems).To(BeEmpty(), "problems that the browser reported")
	})
	return t
}

func (t *tab) report(problem string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.problems = append(t.problems, problem)
}

// timeout is the time limit of one step in the browser on a busy machine.
const timeout = time.Minute

func (t *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	GinkgoHelper()
	ctx, cancel := context.WithTimeout(t.ctx, timeout)
	defer cancel()
	Expect(chromedp.Do(ctx, actions...)).To(Succeed())
}

// keepPicture saves a screenshot of a failed spec.
func (t *tab) keepPicture() {
	dir := os.Getenv("ARTIFACTS")
	if dir == "" {
		return
	}
	ctx, cancel := context.WithTimeout(t.ctx, timeout)
	defer cancel()
	if picture, err := chromedp.Run(ctx, chromedp.CaptureScreenshot()); err == nil {
		name := regexp.MustCompile(`\W+`).ReplaceAllString(CurrentSpecReport().FullText(), "-")
		_ = os.WriteFile(filepath.Join(dir, name+".png"), picture, 0o600) // best effort
	}
}

func (t *tab) visit(path string) {
	GinkgoHelper()
	t.do(chromedp.Navigate(t.base+path), chromedp.WaitReady(chromedp.CSS("main")))
}

func (t *tab) click(selector string) {
	GinkgoHelper()
	t.do(chromedp.WaitVisible(chromedp.CSS(selector)), chromedp.Click(chromedp.CSS(selector)))
}

// text returns the visible text of an element, or "" if it does not exist.
func (t *tab) text(selector string) string {
	GinkgoHelper()
	quoted := suitetest.Must(json.Marshal(selector))
	return t.script(`document.querySelector(` + string(quoted) + `)?.innerText ?? ''`)
}

// script returns the value of an expression as text.
func (t *tab) script(expression string) string {
	GinkgoHelper()
	return evaluate(t, `String(`+expression+`)`)
}

// evaluate returns the value of an expression. It retries while the browser navigates.
func evaluate(t *tab, expression string, options ...chromedp.EvaluateOption) (text string) {
	GinkgoHelper()
	Eventually(func() (err error) {
		ctx, cancel := context.WithTimeout(t.ctx, timeout)
		defer cancel()
		text, err = chromedp.Run(ctx, chromedp.Evaluate[string](expression, options...))
		return err
	}).Should(Succeed())
	return text
}

// sees waits for a text on the page.
func (t *tab) sees(text string) {
	GinkgoHelper()
	Eventually(func() string { return t.text("body") }).WithPolling(50 * time.Millisecond).Should(ContainSubstring(text))
}

// live waits until the script of the page receives live numbers.
func (t *tab) live() {
	GinkgoHelper()
	Eventually(func() string { return t.script(`document.querySelector('#dot').className`) }).
		WithPolling(50 * time.Millisecond).Should(ContainSubstring("live"))
}

func (t *tab) keys(keys ...string) {
	GinkgoHelper()
	for _, key := range keys {
		t.do(chromedp.KeyEvent(key))
	}
}

// scheme sets the color scheme to light or dark.
func scheme(name string) chromedp.Action[chromedp.Void] {
	return func(ctx context.Context, t *chromedp.Target) (chromedp.Void, error) {
		_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}},
		})
		return chromedp.Void{}, err
	}
}

// accessible returns the script of axe-core, which deploy/tools/axe-core downloads and verifies.
// The spec is skipped if that fails.
func accessible() string {
	GinkgoHelper()
	path := filepath.Join("..", "..", "..", ".cache", "axe-core.js")
	if out, err := exec.Command(filepath.Join("..", "..", "tools", "axe-core"), path).CombinedOutput(); err != nil {
		skip("axe-core is not available: " + string(out))
	}
	return string(suitetest.Must(os.ReadFile(path)))
}

// violations returns axe-core's findings for these rules.
func (t *tab) violations(axe, rules string) string {
	GinkgoHelper()
	_ = evaluate(t, axe+";''")
	return evaluate(t, `axe.run({runOnly: `+rules+`}).then((r) =>
		r.violations.map((v) => v.id + ': ' +
			v.nodes.map((n) => n.target + ' ' + n.failureSummary).join('; ')).join('\n'))`, chromedp.EvalAwaitPromise)
}
