package curlctl_test

import (
	"bufio"
	"context"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/curlctl"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
)

// browser is a browser without JavaScript.
type browser struct {
	base, entry string
	client      *http.Client
	// stop stops the console.
	stop func()
}

// enter opens the printed address, which signs in.
func (b *browser) enter() *browser {
	GinkgoHelper()
	b.at(b.entry)
	b.page("/")
	return b
}

// at returns the status and the page at an address.
func (b *browser) at(address string) (int, string) {
	GinkgoHelper()
	if strings.HasPrefix(address, "/") {
		address = b.base + address
	}
	r := suitetest.Must(b.client.Get(address))
	return read(r)
}

// page returns the page at an address, which must have status 200. Like the script, it retries while NATS is busy.
func (b *browser) page(address string) string {
	GinkgoHelper()
	code, text := b.at(address)
	if code == http.StatusServiceUnavailable {
		Eventually(func() int { code, text = b.at(address); return code }).WithTimeout(3 * time.Minute).WithPolling(polling).
			ShouldNot(Equal(http.StatusServiceUnavailable))
	}
	Expect(code).To(Equal(http.StatusOK), "%s: %s", address, text)
	return text
}

// eventually returns an assertion about a page that changes.
func (b *browser) eventually(address string) AsyncAssertion {
	GinkgoHelper()
	return Eventually(func() string { return b.page(address) }).WithPolling(polling)
}

// send sends a form.
func (b *browser) send(method, path string, form url.Values, change func(*http.Request)) (int, string) {
	GinkgoHelper()
	r := suitetest.Must(http.NewRequest(method, b.base+path, strings.NewReader(form.Encode())))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if change != nil {
		change(r)
	}
	response := suitetest.Must(b.client.Do(r))
	return read(response)
}

// form returns the fields of the dialog at an address.
func (b *browser) form(address string) url.Values {
	GinkgoHelper()
	return formOf(b.page(address))
}

// polling is the interval of page reads. The limit is 20 per second.
const polling = 100 * time.Millisecond

// open runs `curlctl console` until the spec ends.
func (w *world) open(args ...string) *browser {
	GinkgoHelper()
	return w.openAt(time.Now, args...)
}

func (w *world) openAt(now func() time.Time, args ...string) *browser {
	GinkgoHelper()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := curlctl.CommandAt("curlctl", now)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(append(append([]string{"console"}, args...), w.connect...))
	reader, writer := io.Pipe()
	cmd.SetOut(writer)
	cmd.SetErr(GinkgoWriter)
	ended := make(chan error, 1)
	go func() { err := cmd.ExecuteContext(ctx); _ = writer.CloseWithError(io.EOF); ended <- err }()
	line, err := bufio.NewReader(reader).ReadString('\n')
	if err != nil {
		Expect(<-ended).NotTo(HaveOccurred())
	}
	jar := suitetest.Must(cookiejar.New(nil))
	transport := &http.Transport{}
	client := &http.Client{Jar: jar, Transport: transport}
	b := &browser{entry: regexp.MustCompile(`https?://\S+`).FindString(line), client: client}
	stopped := false
	b.stop = func() {
		if !stopped {
			stopped = true
			cancel()
			Eventually(ended).Should(Receive(BeNil()))
			transport.CloseIdleConnections()
		}
	}
	DeferCleanup(b.stop)
	u := suitetest.Must(url.Parse(b.entry))
	b.base = "http://127.0.0.1:" + u.Port()
	return b
}

func read(r *http.Response) (int, string) {
	GinkgoHelper()
	defer func() { _ = r.Body.Close() }()
	text := suitetest.Must(io.ReadAll(r.Body))
	return r.StatusCode, string(text)
}

var fieldsOfForm = regexp.MustCompile(`<input[^>]* name="([^"]+)" value="([^"]*)"`)

// hardening returns the security headers of every response.
func hardening() map[string]string {
	return map[string]string{
		"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; " +
			"connect-src 'self'; form-action 'self'; " +
			"base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types console",
		"X-Content-Type-Options":       "nosniff",
		"X-Frame-Options":              "DENY",
		"Referrer-Policy":              "no-referrer",
		"Cross-Origin-Opener-Policy":   "same-origin",
		"Cross-Origin-Resource-Policy": "same-origin",
		"Permissions-Policy":           "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
		"Cache-Control":                "no-store",
	}
}

// liveOf returns the address that an open page polls.
func liveOf(page string) string {
	GinkgoHelper()
	match := regexp.MustCompile(`data-live="([^"]+)"`).FindStringSubmatch(page)
	Expect(match).NotTo(BeNil(), page)
	return html.UnescapeString(match[1])
}

// volatile has the parts of a page that change from run to run.
var volatile = []struct {
	pattern *regexp.Regexp
	text    string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(Z| UTC)`), "2026-01-31 12:00:00 UTC"},
	{regexp.MustCompile(`\b\d\d:\d\d:\d\d\b`), "12:00:00"},
}

// mainOf returns the main element of a page.
func mainOf(page string) string {
	GinkgoHelper()
	_, main, found := strings.Cut(page, "<main")
	Expect(found).To(BeTrue(), page)
	main, _, _ = strings.Cut(main, "</main>")
	return "<main" + main + "</main>\n"
}

// formOf returns the fields of a dialog.
func formOf(page string) url.Values {
	GinkgoHelper()
	_, dialog, found := strings.Cut(page, `<div class="dialog`)
	Expect(found).To(BeTrue(), "%s", page)
	form := url.Values{}
	for _, match := range fieldsOfForm.FindAllStringSubmatch(dialog, -1) {
		form.Add(match[1], match[2])
	}
	return form
}
