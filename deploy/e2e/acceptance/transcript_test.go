package acceptance_test

import (
	"context"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/proto/annotation"
)

// terminal runs commands as users type them.
type terminal struct {
	world *world.World
	// environment has a PATH with kubectl and curlctl, also as a kubectl plugin, as installed by the Makefile, and
	// a kubeconfig with the namespace of the world.
	environment []string
}

func newTerminal(w *world.World) *terminal {
	GinkgoHelper()
	tools, kubectl := GinkgoT().TempDir(), world.Kubectl()
	for name, path := range map[string]string{
		"kubectl": kubectl, "curlctl": w.Program("curlctl"), "kubectl-curl_me_that": w.Program("curlctl"),
		"kubectl_complete-curl_me_that": "../../curlctl/kubectl/kubectl_complete-curl_me_that",
	} {
		Expect(os.Symlink(suitetest.Must(filepath.Abs(path)), filepath.Join(tools, name))).To(Succeed())
	}
	config := filepath.Join(tools, "config")
	Expect(os.WriteFile(config, suitetest.Must(os.ReadFile(w.Cluster.Kubeconfig)), 0o600)).To(Succeed())
	Expect(exec.Command(kubectl, "--kubeconfig="+config, "config", "set-context", "--current",
		"--namespace="+w.Namespace).Run()).To(Succeed())
	return &terminal{world: w, environment: append(os.Environ(), "PATH="+tools+":"+os.Getenv("PATH"),
		"KUBECONFIG="+config, "CURLMETHAT_NATS_URL="+w.NATS.URL(), "COLUMNS=120")}
}

// run runs a command and returns its output.
func (t *terminal) run(ctx context.Context, command string) []byte {
	out, _ := t.shell(ctx, command).CombinedOutput() // the output has the error
	return out
}

// shell returns a command for a shell at the root of the repository.
func (t *terminal) shell(ctx context.Context, command string) *exec.Cmd {
	shell := exec.CommandContext(ctx, "sh", "-c", command)
	shell.Env, shell.Dir = t.environment, "../../.."
	return shell
}

// normal replaces text that differs from run to run.
var normal = []struct {
	pattern *regexp.Regexp
	text    string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`), "2026-01-02T03:04:05Z"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC`), "2026-01-02 03:04:04 UTC"},
	{regexp.MustCompile(`\d\d:\d\d UTC`), "04:04 UTC"},
	{regexp.MustCompile(`"fence":"[^"]*"`), `"fence":"1767323045000.7"`},
	{regexp.MustCompile(`"object":"[^"]*"`), `"object":"0b0e8a63"`},
	{regexp.MustCompile(`(?m)^UID:(\s+)\S+`), "UID:${1}0b0e8a63-0000-4000-8000-000000000000"},
	{regexp.MustCompile(`(?m)^(  (?:Warning|Normal)\s+\w+\s+)\S+(?: \(x\d+ over \S+\))?\s+x-kv8s`), "${1}5s    x-kv8s"},
	{regexp.MustCompile(`127\.0\.0\.1:\d+`), "127.0.0.1:8443"},
	{regexp.MustCompile(`(failure )\d+`), "${1}7"},
}

// normalize replaces the parts of a text that differ from run to run.
func (t *terminal) normalize(text string) string {
	// keep the width of columns in a table
	text = strings.ReplaceAll(text, t.world.Namespace+"   ", fmt.Sprintf("%-*s", len(t.world.Namespace)+3, "shop"))
	text = strings.ReplaceAll(text, t.world.Namespace, "shop")
	text = strings.ReplaceAll(text, fmt.Sprintf("localhost:%d", t.world.Origin.Port()), "localhost:8080")
	for _, n := range normal {
		text = n.pattern.ReplaceAllString(text, n.text)
	}
	lines := strings.SplitAfter(text, "\n")
	if first := slices.IndexFunc(lines, eventRow.MatchString); first >= 0 { // Events of the same second have no order
		last := first + 1
		for last < len(lines) && eventRow.MatchString(lines[last]) {
			last++
		}
		slices.Sort(lines[first:last])
	}
	return strings.Join(lines, "")
}

// eventRow matches an Event as kubectl describes it.
var eventRow = regexp.MustCompile(`^  (?:Warning|Normal) `)

// halfHour is the file with the commands of a user's half hour and their output. If somebody sets
// TRANSCRIPT, the spec writes the output to the file instead of expecting it.
const halfHour = "testdata/half-hour.txt"

var (
	// typed matches a command in the page and its output.
	typed = regexp.MustCompile("(?m)^\\$ (.+)\n((?:(?:[^$`\n].*)?\n)*)")
	// write matches a command that writes a ConfigMap.
	write = regexp.MustCompile(`^kubectl (?:create|annotate|patch) configmap (\S+)`)
	// confirmation matches the line that kubectl prints after a write. The page leaves it out.
	confirmation = regexp.MustCompile(`(?m)^configmap/\S+ (?:created|annotated|patched)\n`)
	// spans matches durations, which vary, and the padding around them in a table.
	spans = regexp.MustCompile(`\b\d+[dhms](?:\d+[ms])*\b|[ -]{2,}`)
)

var _ = Describe("A user's half hour", func() {
	It("prints the golden output, with one write per change of state", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{Flags: map[string][]string{world.Fetcher: {
			"--timeout=10s", "--retry-base=2s",
		}}})
		w.Unfinished() // the busy host asks for a pause of 20 minutes
		t := newTerminal(w)
		missing := w.Origin.Page("/missing")
		w.Origin.Page("/hello").Says("Hello!")
		w.Origin.Page("/busy").Fails(http.StatusTooManyRequests).With("Retry-After", "1200")
		before := map[string]func(){
			"kubectl annotate configmap missing x-kv8s.io/curl-now=1": func() { pastSharing(missing) },
			"kubectl describe configmap missing | grep Events": func() {
				Expect(w.Named("busy").Events(ctx)[0].Note).To(ContainSubstring("next attempt in 20m, as the host requested"))
				Expect(w.Cluster.Client.EventsV1().Events(w.Namespace).
					DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})).To(Succeed())
			},
			"kubectl annotate configmap missing --overwrite x-kv8s.io/curl-now=2": func() {
				missing.Says("found")
				pastSharing(missing)
			},
		}
		edits := map[string]int{}
		text := string(suitetest.Must(os.ReadFile(halfHour)))
		page := typed.ReplaceAllStringFunc(text, func(part string) string {
			command, output, _ := strings.Cut(strings.TrimPrefix(part, "$ "), "\n")
			if prepare := before[command]; prepare != nil {
				prepare()
			}
			if edit := write.FindStringSubmatch(command); edit != nil {
				edits[edit[1]]++
			}
			return "$ " + command + "\n" + t.shows(ctx, command, output)
		})
		if file := os.Getenv("TRANSCRIPT"); file != "" {
			Expect(os.WriteFile(file, []byte(page), 0o644)).To(Succeed())
		}
		shouldLog(ctx, w)
		shouldWrite(ctx, w, edits)
	})
})

// shows runs a command of the page until it prints the output in the page. With TRANSCRIPT, it gives up after a
// while and returns the output so far.
func (t *terminal) shows(ctx context.Context, command, output string) (printed string) {
	GinkgoHelper()
	fail, limit := Fail, time.Minute
	if os.Getenv("TRANSCRIPT") != "" {
		fail, limit = func(string, ...int) {}, 10*time.Second
	}
	here := strings.NewReplacer("shop", t.world.Namespace, ":8080", ":"+strconv.Itoa(t.world.Origin.Port()))
	if NewGomega(fail).Eventually(ctx, func() string {
		printed = confirmation.ReplaceAllString(t.normalize(string(t.run(ctx, here.Replace(command)))), "")
		return spans.ReplaceAllString(printed, " ")
	}).WithTimeout(limit).Should(Equal(spans.ReplaceAllString(output, " ")), "%s", command) {
		return output
	}
	return printed
}

// shouldLog checks the log of the fetcher: hosts as in Events, readable durations, and the words of the
// metrics.
func shouldLog(ctx context.Context, w *world.World) {
	GinkgoHelper()
	lines := w.Fetcher().Log
	about := func(name string) func() []string {
		return func() []string { return lines.Matching(`"key":"` + w.Namespace + "/" + name + `/page"`) }
	}
	Eventually(ctx, about("internal")).Should(ContainElement(And(
		ContainSubstring(`"host":"(address)"`), ContainSubstring(`"cause":"new"`),
		ContainSubstring(`"reason":"AddressDenied"`), MatchRegexp(`"next":"(1h|[45]\dm)`),
	)))
	Eventually(ctx, about("busy")).Should(ContainElement(And(
		ContainSubstring(`"host":"localhost"`), ContainSubstring(`"cause":"new"`), ContainSubstring(`"reason":"BadStatus"`),
		MatchRegexp(`"next":"(20m|19m)`),
	)))
	Expect(lines.Matching("169.254")).To(BeEmpty())
}

// shouldWrite checks how often the system wrote each ConfigMap. A version with an unchanged status counts as an
// edit of the user.
func shouldWrite(ctx context.Context, w *world.World, edits map[string]int) {
	GinkgoHelper()
	w.EventuallyCaughtUp(ctx)
	for _, life := range w.History.Lives() {
		before, kept := "", 0
		for _, version := range life.Versions {
			if now := version.Object.Annotations[annotation.StatusKey]; now != before {
				before = now
				continue
			}
			w.History.BySpec(version.Object)
			kept++
		}
		Expect(kept).To(Equal(edits[life.Name]), "writes of %s without a status of their own", life.Name)
	}
	for name, n := range map[string]int{
		"mine":     4, // the value, two annotation errors, and their correction
		"missing":  2, // the failure and the recovery, nothing for the check in between
		"busy":     1, // the failure
		"internal": 1, // the failure
		"paused":   1, // the value
		"own":      1, // the key belongs to another owner
		"edited":   2, // the value and its repair
	} {
		Expect(w.Named(name).Writes(ctx)).To(Equal(n), name)
	}
}

var (
	// Commands in a page, on their own line or as code within a sentence.
	ownLine    = regexp.MustCompile(`(?m)^(?:\$ )?((?:kubectl|(?:bin/)?curlctl) [^\n]*[^\n\\])$`)
	inSentence = regexp.MustCompile("`((?:kubectl|(?:bin/)?curlctl) [^`\n]+)`")
	// reads matches commands that only read and exit.
	reads = regexp.MustCompile(`^(?:kubectl curl-me-that|(?:bin/)?curlctl) (?:` +
		`status|failing|failures(?: show| --| -|$)|wants|timers|audit|doctor|check|completion|.* --dry-run)|` +
		`^kubectl (?:get|describe|auth can-i|explain|events) `)
	// elsewhere matches commands that need more than an API server and the services.
	elsewhere = regexp.MustCompile(`--raw|(?:get|describe|explain) (?:watchers?|wat|pod|hpa|scaledobject)\b|--fetch`)
	// part matches a command in a sentence without its object.
	part = regexp.MustCompile(` (?:-\w|--[\w-]+|show|check|configmap)$`)
)

// placeholders maps words in pages to values of the spec.
var placeholders = []struct {
	word *regexp.Regexp
	with string
}{
	{regexp.MustCompile(`\b(?:default|shop|team-a|NAMESPACE|NS)/(?:[\w-]+)`), "$$NAMESPACE/mine"},
	{regexp.MustCompile(`(-n|--namespace)[ =](?:default|shop|team-a|curl-me-that|NAMESPACE|NS)\b`), "$1 $$NAMESPACE"},
	{regexp.MustCompile(`\bconfigmap(?:/| )[\w-]+`), "configmap mine"},
	{regexp.MustCompile(`\b(show) (?:ID|\d+)`), "$1 $$FAILURE"},
	{regexp.MustCompile(`\breplay (?:ID|\d+)`), "replay $$FAILURE"},
	{regexp.MustCompile(`-f (?:FILE|[\w.-]+\.yaml)`), "-f deploy/samples/config-map-valid.yaml"},
}

var _ = Describe("A read-only command in a page, a runbook or an alert", func() {
	It("works as written", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		t := newTerminal(w)
		cm := w.Create(ctx, "mine", world.Asking("page="+w.Origin.Page("/missing").URL()))
		cm.EventuallyReports(ctx, "page", "BadStatus")
		var id string
		Eventually(ctx, func() string {
			id = strings.TrimSpace(string(t.run(ctx, "curlctl failures --name mine -o name | sed s,failure/,,")))
			return id
		}).Should(MatchRegexp(`^\d+$`))
		found := documented("../../..")
		Expect(len(found)).To(BeNumerically(">=", 30))
		for _, line := range found {
			command := line
			for _, p := range placeholders {
				command = p.word.ReplaceAllString(command, p.with)
			}
			shell := t.shell(ctx, "NAMESPACE="+w.Namespace+" FAILURE="+id+"; "+command)
			out, err := shell.CombinedOutput()
			Expect(shell.ProcessState).NotTo(BeNil(), "%v", err)
			Expect(shell.ProcessState.ExitCode()).To(BeElementOf(codes(line)), "%s\n%s\n%s", line, command, out)
			Expect(string(out)).NotTo(MatchRegexp(`(?i)unknown (flag|command|shorthand)|^usage:`), line)
		}
	})
})

// codes returns the allowed exit codes of a command. Some commands report their result by exit code.
func codes(line string) []int {
	switch {
	case strings.Contains(line, "curlctl doctor"), strings.Contains(line, "curlctl check"):
		return []int{0, 7}
	case strings.Contains(line, "kubectl auth can-i"):
		return []int{0, 1}
	}
	return []int{0}
}

// documented returns the read-only commands of all pages and alerts, without duplicates.
func documented(root string) []string {
	GinkgoHelper()
	var found []string
	Expect(filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch name := entry.Name(); {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains([]string{".git", ".cache", "testdata", "bin", "decisions"}, name):
			return filepath.SkipDir
		case filepath.Ext(name) != ".md" && !strings.Contains(path, filepath.Join("files", "rules")) || entry.IsDir():
			return nil
		}
		text, err := os.ReadFile(path)
		for _, commands := range []*regexp.Regexp{ownLine, inSentence} {
			for _, match := range commands.FindAllStringSubmatch(string(text), -1) {
				line := strings.TrimPrefix(match[1], "bin/")
				if reads.MatchString(line) && !elsewhere.MatchString(line) &&
					(commands == ownLine || !part.MatchString(line) || strings.HasSuffix(line, " --dry-run")) {
					found = append(found, line)
				}
			}
		}
		return err
	})).To(Succeed())
	slices.Sort(found)
	return slices.Compact(found)
}

var _ = Describe("kubectl", func() {
	It("finds curlctl as a plugin and completes its arguments with live names", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		t := newTerminal(w)
		w.Create(ctx, "failing", world.Asking("mydata="+w.Origin.Page("/nothing").URL())).
			EventuallyHasEvents(ctx, "BadStatus")
		for command, said := range map[string]string{
			"plugin list --name-only":                  "kubectl-curl_me_that",
			"curl-me-that status":                      "1 in the last hour, 1 kept",
			"curl-me-that status $NAMESPACE/failing":   "gave up",
			"curl-me-that --help":                      "kubectl curl-me-that [command]",
			"__complete curl-me-that fail":             "failures",
			"__complete curl-me-that failures show ''": "1\tBadStatus " + w.Namespace + "/failing",
		} {
			out, err := t.shell(ctx, "NAMESPACE="+w.Namespace+"; kubectl "+command+" 2>/dev/null").Output()
			Expect(err).NotTo(HaveOccurred(), command)
			Expect(string(out)).To(ContainSubstring(said), command)
		}
	})
})
