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
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/suitetest"
)

// transcript is a page with the commands that a user types and their output. `make transcript`
// writes it to the file in TRANSCRIPT.
type transcript struct {
	world   *world.World
	kubectl string
	page    strings.Builder
	// typed counts the user's writes of each ConfigMap.
	typed map[string]int
}

// write matches a command that writes a ConfigMap.
var write = regexp.MustCompile(`^kubectl (?:create|annotate|patch) configmap (\S+)`)

// part starts a section of the page.
func (t *transcript) part(title, text string) { fmt.Fprintf(&t.page, "\n## %s\n\n%s\n", title, text) }

// types runs a command, as a user does, until its output is as expected. That output goes into the
// page.
func (t *transcript) types(ctx context.Context, command string, expected types.GomegaMatcher) {
	GinkgoHelper()
	var out []byte
	Eventually(ctx, func() string {
		out = t.run(ctx, command)
		return string(out)
	}).WithTimeout(time.Minute).Should(expected, "%s", command)
	if command := write.FindStringSubmatch(command); command != nil {
		t.typed[command[1]]++
	}
	fmt.Fprintf(&t.page, "\n```console\n$ %s\n%s```\n", t.told(command), t.told(string(out)))
}

// run runs a command and returns its output.
func (t *transcript) run(ctx context.Context, command string) []byte {
	out, _ := t.shell(ctx, command).CombinedOutput() // the output has the error
	return out
}

// shell returns a command that runs in a shell at the root of the repository. PATH has kubectl and
// curlctl, which is also installed as a plugin, as the Makefile does.
func (t *transcript) shell(ctx context.Context, command string) *exec.Cmd {
	tools := GinkgoT().TempDir()
	for name, path := range map[string]string{
		"kubectl": t.kubectl, "curlctl": t.world.Program("curlctl"),
		"kubectl-curl_me_that":          t.world.Program("curlctl"),
		"kubectl_complete-curl_me_that": "../../curlctl/kubectl/kubectl_complete-curl_me_that",
	} {
		path := suitetest.Must(filepath.Abs(path))
		Expect(os.Symlink(path, filepath.Join(tools, name))).To(Succeed())
	}
	shell := exec.CommandContext(ctx, "sh", "-c", command)
	shell.Env = append(os.Environ(), "PATH="+tools+":"+os.Getenv("PATH"), "KUBECONFIG="+t.config(),
		"CURLMETHAT_NATS_URL="+t.world.NATS.URL(), "COLUMNS=120")
	shell.Dir = "../../.."
	return shell
}

// config returns a kubeconfig with the namespace of the world.
func (t *transcript) config() string {
	raw := suitetest.Must(os.ReadFile(t.world.Cluster.Kubeconfig))
	path := filepath.Join(GinkgoT().TempDir(), "config")
	Expect(os.WriteFile(path, raw, 0o600)).To(Succeed())
	Expect(exec.Command(t.kubectl, "--kubeconfig="+path, "config", "set-context", "--current",
		"--namespace="+t.world.Namespace).Run()).To(Succeed())
	return path
}

// normal replaces text that differs from run to run.
var normal = []struct {
	pattern *regexp.Regexp
	text    string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`), "2026-01-02T03:04:05Z"},
	{regexp.MustCompile(`\d\d:\d\d UTC`), "04:04 UTC"},
	{regexp.MustCompile(`"fence":"[^"]*"`), `"fence":"1767323045000.7"`},
	{regexp.MustCompile(`"object":"[^"]*"`), `"object":"0b0e8a63"`},
	{regexp.MustCompile(`(?m)^UID:(\s+)\S+`), "UID:${1}0b0e8a63-0000-4000-8000-000000000000"},
	{regexp.MustCompile(`next attempt in (?:\d+|\d+m\d+)s`), "next attempt in 2s"},
	{regexp.MustCompile(`(?m)^(  (?:Warning|Normal)\s+\w+\s+)\S+(?: \(x\d+ over \S+\))?\s+x-kv8s`), "${1}5s    x-kv8s"},
	{regexp.MustCompile(`(?m)^in \d+[mh] +`), "in 60m   "},
	{regexp.MustCompile(`(?m)^\ds( +)`), "5s${1}"},
	{regexp.MustCompile(`(?m)^\d\ds( +)`), "5s ${1}"},
	{regexp.MustCompile(`(?m)^\dm\ds( +)`), "5s  ${1}"},
	{regexp.MustCompile(`(?m)^\dm\d\ds( +)`), "5s   ${1}"},
	{regexp.MustCompile(`(failing +BadStatus(?: \d+)? +)\d+s( +)\d+m`), "${1}5s${2}19m"},
	{regexp.MustCompile(`(page +)\d+s( +pause)`), "${1}5s${2}"},
	{regexp.MustCompile(`127\.0\.0\.1:\d+`), "127.0.0.1:8443"},
	{regexp.MustCompile(`(failure )\d+`), "${1}7"},
}

// told returns text without the parts that differ from run to run.
func (t *transcript) told(text string) string {
	// in a table
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

// pageOf is the command that shows the page of a ConfigMap.
func pageOf(name string) string {
	return "kubectl get configmap " + name + ` -o jsonpath='{.data.page}{"\n"}'`
}

// events is the command that shows the Events of a ConfigMap.
func events(name string) string {
	return "kubectl describe configmap " + name + " | grep -E '^  (Warning|Normal)'"
}

// statusOf is the command that shows the status annotation of a ConfigMap.
func statusOf(name string) string {
	return "kubectl get configmap " + name + ` -o jsonpath='{.metadata.annotations.x-kv8s\.io/curl-status}{"\n"}'`
}

// annotates changes the annotations of a ConfigMap.
func (t *transcript) annotates(ctx context.Context, name, annotations string) {
	GinkgoHelper()
	t.types(ctx, "kubectl annotate configmap "+name+" "+annotations, ContainSubstring("annotated"))
}

// wants creates an annotated ConfigMap.
func (t *transcript) wants(ctx context.Context, name, pairs string) {
	GinkgoHelper()
	t.types(ctx, "kubectl create configmap "+name, ContainSubstring("created"))
	t.annotates(ctx, name, "'x-kv8s.io/curl-me-that="+pairs+"'")
}

var _ = Describe("A user's half hour", func() {
	It("explains itself where people look, with no more writes than changes of state", func(ctx SpecContext) {
		kubectl := world.Kubectl()
		w := env.World(ctx, world.Options{Flags: map[string][]string{world.Fetcher: {
			"--timeout=10s", "--retry-base=2s",
		}}})
		w.Unfinished() // the host that asks for a pause does so for 20 minutes
		t := &transcript{world: w, kubectl: kubectl, typed: map[string]int{}}
		t.page.WriteString(`# A user's half hour

Commands that a user types and their output, from a first page to the end of a failure. ` +
			"`make transcript`" + ` writes this page from a real
run against an API server, with fixed times, identities and ports. ` +
			`For causes and fixes, see [why-empty.md](why-empty.md).
`)
		t.goesWell(ctx)
		t.isMistyped(ctx)
		t.fails(ctx)
		t.isDenied(ctx)
		t.isSuspended(ctx)
		t.recovers(ctx)
		t.logs(ctx)
		page := compact(t.page.String())
		if file := os.Getenv("TRANSCRIPT"); file != "" {
			Expect(os.WriteFile(file, []byte(page), 0o644)).To(Succeed())
			return
		}
		written := suitetest.Must(os.ReadFile("../../docs/half-hour.md"))
		Expect(timeless(page)).
			To(Equal(timeless(string(written))), "deploy/docs/half-hour.md is stale: make transcript")
	})
})

// confirmation matches the line that kubectl prints after a write.
var confirmation = regexp.MustCompile(`(?m)^configmap/\S+ (?:created|annotated|patched)\n`)

// compact leaves out confirmations, and joins blocks with nothing between them.
func compact(page string) string {
	return strings.ReplaceAll(confirmation.ReplaceAllString(page, ""), "```\n\n```console\n", "")
}

// spans matches durations and the padding around them in a table.
var spans = regexp.MustCompile(`\b\d+[dhms](?:\d+[ms])*\b|[ -]{2,}`)

// timeless returns a page without durations, which depend on the machine, and without the column
// widths, which depend on them.
func timeless(page string) []string {
	return strings.Split(spans.ReplaceAllString(page, " "), "\n")
}

// logs checks the log lines of the fetcher: they show hosts as Events do, durations as people read
// them, and the words of the metrics.
func (t *transcript) logs(ctx context.Context) {
	GinkgoHelper()
	lines := t.world.Fetcher().Log
	about := func(name string) func() []string {
		return func() []string { return lines.Matching(`"key":"` + t.world.Namespace + "/" + name + `/page"`) }
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

// hello is the URL of a page that says Hello!.
func (t *transcript) hello() string { return t.world.Origin.Page("/hello").Says("Hello!").URL() }

func (t *transcript) goesWell(ctx context.Context) {
	t.part("A page", "A ConfigMap gets an annotation, and its data appears.")
	t.wants(ctx, "mine", "page="+t.hello())
	t.types(ctx, pageOf("mine"), Equal("Hello!\n"))
	t.types(ctx, statusOf("mine"), ContainSubstring("sha256"))
}

func (t *transcript) isMistyped(ctx context.Context) {
	t.part("A typo", "A value that is not a pair, a pair that breaks a rule, and an unknown name. Each is explained by "+
		"an Event, and in the annotation until it is corrected. Nothing is removed.")
	t.annotates(ctx, "mine", "--overwrite 'x-kv8s.io/curl-me-that=not correct'")
	t.types(ctx, events("mine"), ContainSubstring("annotation value 'not correct' does not match expected format key=url"))
	t.annotates(ctx, "mine", "--overwrite 'x-kv8s.io/curl-me-that=page=ftp://example.com' x-kv8s.io/curl-refrsh=10m")
	t.types(ctx, events("mine"),
		And(ContainSubstring("the scheme must be http or https"), ContainSubstring("did you mean curl-refresh?")))
	t.types(ctx, "curlctl status "+t.world.Namespace+"/mine",
		And(ContainSubstring("not followed since"), ContainSubstring("the scheme must be http or https")))
	t.types(ctx, pageOf("mine"), Equal("Hello!\n"))
	t.annotates(ctx, "mine", "--overwrite 'x-kv8s.io/curl-me-that=page="+t.hello()+"' x-kv8s.io/curl-refrsh-")
	t.types(ctx, statusOf("mine"), And(ContainSubstring("sha256"), Not(ContainSubstring("InvalidAnnotation"))))
}

func (t *transcript) fails(ctx context.Context) {
	site := t.world.Origin
	t.part("Nothing there", "The Event has the status code and the next step. The annotation still has both when the "+
		"Event has expired.")
	t.wants(ctx, "missing", "page="+site.Page("/missing").URL())
	t.types(ctx, events("missing"),
		ContainSubstring("responded with 404; key page has no value yet; giving up after 1 attempt; next try"))
	t.types(ctx, statusOf("missing"),
		And(ContainSubstring(`"httpStatus":404`), ContainSubstring(`"nextTry"`)))

	t.part("A host that asks for a pause",
		"The next attempt waits as long as the host asks. The list of failures shows until when.")
	t.wants(ctx, "busy", "page="+site.Page("/busy").Fails(http.StatusTooManyRequests).With("Retry-After", "1200").URL())
	t.types(ctx, events("busy"),
		ContainSubstring("responded with 429; key page has no value yet; next attempt in 20m, as the host requested"))
	t.types(ctx, statusOf("busy"), And(ContainSubstring(`"waitsFor":"pause of localhost"`), ContainSubstring(`"nextTry"`)))
	t.types(ctx, "curlctl failing -n "+t.world.Namespace+" --name busy -o wide", ContainSubstring("pause of localhost"))
}

func (t *transcript) isDenied(ctx context.Context) {
	t.part("An address that is not public", "There is no next try: only another URL or policy helps.")
	t.wants(ctx, "internal", "page=http://169.254.169.254/latest/meta-data")
	t.types(ctx, events("internal"),
		ContainSubstring("fetching from 169.254.169.254 is not allowed: its address is not public"))
}

func (t *transcript) isSuspended(ctx context.Context) {
	t.part("Suspending a ConfigMap", "While it is suspended, nothing is fetched and manual edits stay.")
	t.wants(ctx, "paused", "page="+t.hello())
	t.types(ctx, pageOf("paused"), Equal("Hello!\n"))
	t.annotates(ctx, "paused", "x-kv8s.io/curl-suspend=true")

	t.types(ctx, `kubectl patch configmap paused --patch '{"data":{"page":"changed"}}'`, ContainSubstring("patched"))
	t.types(ctx, pageOf("paused"), Equal("changed\n"))

	t.part("A key of your own", "It is never overwritten.")
	t.types(ctx, "kubectl create configmap own --from-literal=page=mine", ContainSubstring("created"))
	t.annotates(ctx, "own", "'x-kv8s.io/curl-me-that=page="+t.hello()+"'")
	t.types(ctx, events("own"), ContainSubstring("key page already exists and is not managed by curl-me-that"))
	t.types(ctx, statusOf("own"),
		ContainSubstring(`"message":"key page already exists and is not managed by curl-me-that`))

	t.part("An edit by hand", "curl-me-that repairs keys that it wrote. An Event names who changed them.")
	t.wants(ctx, "edited", "page="+t.hello())
	t.types(ctx, pageOf("edited"), Equal("Hello!\n"))
	t.types(ctx, `kubectl patch configmap edited --patch '{"data":{"page":"changed"}}'`, ContainSubstring("patched"))
	t.types(ctx, events("edited"),
		ContainSubstring("key page was changed by field manager kubectl-patch; it is fetched again"))
	t.types(ctx, pageOf("edited"), Equal("Hello!\n"))
}

func (t *transcript) recovers(ctx context.Context) {
	missing := t.world.Origin.Page("/missing")
	t.part("The same failure again",
		"The page is still missing. The count of the Event goes up, and the ConfigMap is not written.")
	pastSharing(missing)
	t.annotates(ctx, "missing", "x-kv8s.io/curl-now=1")
	t.types(ctx, `kubectl get events.events.k8s.io -o jsonpath=`+
		`'{range .items[?(@.regarding.name=="missing")]}{.reason} x{.series.count}{"\n"}{end}'`,
		ContainSubstring("BadStatus x2"))

	t.part("Events have expired",
		"A cluster keeps Events for an hour. The annotation still has their message, and curlctl shows the whole history "+
			"of the key.")
	Expect(t.world.Cluster.Client.EventsV1().Events(t.world.Namespace).
		DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})).To(Succeed())
	t.types(ctx, "kubectl describe configmap missing | grep Events", ContainSubstring("<none>"))
	t.types(ctx, "curlctl status "+t.world.Namespace+"/missing",
		And(ContainSubstring("responded with 404"), ContainSubstring("recheck"), ContainSubstring("last checked")))

	t.part("Recovery", "The end of a failure has its own Event.")
	missing.Says("found")
	pastSharing(missing)
	t.annotates(ctx, "missing", "--overwrite x-kv8s.io/curl-now=2")
	t.types(ctx, pageOf("missing"), Equal("found\n"))
	t.types(ctx, events("missing"), ContainSubstring("localhost responded; key page is up to date"))
	t.countWrites(ctx)
}

// writes has the number of writes of each ConfigMap by the system.
func writes() map[string]int {
	return map[string]int{
		"mine":     4, // the value, two annotation errors, and their correction
		"missing":  2, // the failure and the recovery, nothing for the check in between
		"busy":     1, // the failure
		"internal": 1, // the failure
		"paused":   1, // the value
		"own":      1, // the key belongs to another owner
		"edited":   2, // the value and its repair
	}
}

// countWrites checks the writes of each ConfigMap: those that the user typed plus writes. It
// takes a write that keeps the status for one of the user.
func (t *transcript) countWrites(ctx context.Context) {
	GinkgoHelper()
	t.world.EventuallyCaughtUp(ctx)
	for _, life := range t.world.History.Lives() {
		before, typed := "", 0
		for _, version := range life.Versions {
			if now := version.Object.Annotations[annotation.StatusKey]; now != before {
				before = now
				continue
			}
			t.world.History.BySpec(version.Object)
			typed++
		}
		Expect(typed).To(Equal(t.typed[life.Name]), "writes of %s without a status of their own", life.Name)
	}
	for name, n := range writes() {
		Expect(t.world.Named(name).Writes(ctx)).To(Equal(n), name)
	}
}

var (
	// Commands in a page, either on a line of their own or as code within a sentence.
	ownLine    = regexp.MustCompile(`(?m)^(?:\$ )?((?:kubectl|(?:bin/)?curlctl) [^\n]*[^\n\\])$`)
	inSentence = regexp.MustCompile("`((?:kubectl|(?:bin/)?curlctl) [^`\n]+)`")
	// reads matches commands that only read, and end.
	reads = regexp.MustCompile(`^(?:kubectl curl-me-that|(?:bin/)?curlctl) (?:` +
		`status|failing|failures(?: show| --| -|$)|wants|timers|audit|doctor|check|completion|.* --dry-run)|` +
		`^kubectl (?:get|describe|auth can-i|explain|events) `)
	// elsewhere matches commands that need more than an API server and the services.
	elsewhere = regexp.MustCompile(`--raw|(?:get|describe|explain) (?:watchers?|wat|pod|hpa|scaledobject)\b|--fetch`)
	// part matches a command within a sentence that leaves out its object.
	part = regexp.MustCompile(` (?:-\w|--[\w-]+|show|check|configmap)$`)
)

// placeholders maps words of the pages to values of the spec.
var placeholders = []struct {
	word *regexp.Regexp
	with string
}{
	{regexp.MustCompile(`\b(?:default|shop|team-a|NAMESPACE|NS)/(?:[\w-]+)`), "$$NAMESPACE/mine"},
	{regexp.MustCompile(`(-n|--namespace)[ =](?:default|shop|team-a|curl-me-that|NAMESPACE|NS)\b`), "$1 $$NAMESPACE"},
	{regexp.MustCompile(`\bconfigmap(?:/| )[\w-]+`), "configmap mine"},
	{regexp.MustCompile(`\b(show) (?:ID|\d+)`), "$1 $$FAILURE"},
	{regexp.MustCompile(`\breplay (?:ID|\d+)`), "replay $$FAILURE"},
	{regexp.MustCompile(`-f (?:FILE|[\w.-]+\.yaml)`), "-f deploy/samples/refresh.yaml"},
}

// ends has the exit codes of commands that report their result by exit code.
var ends = map[*regexp.Regexp][]int{
	regexp.MustCompile(`curlctl doctor`):     {0, 7},
	regexp.MustCompile(`curlctl check`):      {0, 7},
	regexp.MustCompile(`kubectl auth can-i`): {0, 1},
}

var _ = Describe("A read-only command in a page, a runbook or an alert", func() {
	It("runs as it is written", func(ctx SpecContext) {
		kubectl := world.Kubectl()
		w := env.World(ctx, world.Options{})
		cm := w.Create(ctx, "mine", world.Asking("page="+w.Origin.Page("/missing").URL()))
		cm.EventuallyReports(ctx, "page", "BadStatus")
		t := &transcript{world: w, kubectl: kubectl, typed: map[string]int{}}
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

// codes returns the exit codes allowed for a command.
func codes(line string) []int {
	for command, codes := range ends {
		if command.MatchString(line) {
			return codes
		}
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
		case name == "half-hour.md" || name == "verify.md":
			return nil
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
		t := &transcript{world: w, kubectl: world.Kubectl()}
		w.Create(ctx, "failing", world.Asking("mydata="+w.Origin.Page("/nothing").URL())).EventuallyTells(ctx, "BadStatus")
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
