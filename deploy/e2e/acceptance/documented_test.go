package acceptance_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
)

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
