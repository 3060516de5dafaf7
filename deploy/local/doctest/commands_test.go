package doctest_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kv8s/curl-me-that/deploy/curlctl"
	"github.com/kv8s/curl-me-that/deploy/local"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/fetcher"
	"github.com/kv8s/curl-me-that/watcher"
	"github.com/kv8s/curl-me-that/watcher/keeper"
	"github.com/kv8s/curl-me-that/writer"
)

var (
	// makeCommand matches a call of make in a block or in a sentence.
	makeCommand = regexp.MustCompile("(?m)(?:^(?:\\$ )?|`)make ([a-z][a-z-]*)")
	// makeTarget matches a target of the Makefile.
	makeTarget = regexp.MustCompile(`(?m)^([a-z][a-z-]*):`)
	// started matches a service with its flags, on a line of a block.
	started = regexp.MustCompile(`(?m)^(?:\$ )?(?:bin/)?(watcher|fetcher|writer|keeper|curl-me-that) (--[^\n#]*)`)
	// flagInLine matches a flag of a command line.
	flagInLine = regexp.MustCompile(`(?:^|\s)--([a-z][a-z0-9-]*)`)
	// flagAlone matches a flag without its command in a sentence.
	flagAlone = regexp.MustCompile("`--([a-z][a-z0-9-]*)(?:[= ][^`]*)?`")

	// Commands of curlctl: on their own line, and as code within a sentence.
	ownLine     = regexp.MustCompile(`(?m)^\s*(?:\$ )?((?:kubectl curl-me-that|(?:bin/)?curlctl) [^\n]*)$`)
	inSentence  = regexp.MustCompile("`((?:kubectl curl-me-that|(?:bin/)?curlctl) [^`\n]+)`")
	placeholder = regexp.MustCompile(`(^|=)(?:ID|\[ID…\]|N)$`)
)

// foreignFlags are flags of other programs that pages mention without the command.
var foreignFlags = []string{
	"profile", "set", "allow-pub", "allow-sub", "watched-dir", "volumes", "unsafe-allow-generic-targets",
}

// flagsOf returns the flags of a command and its subcommands.
func flagsOf(c *cobra.Command) map[string]bool {
	all := map[string]bool{"help": true, "version": true}
	add := func(f *pflag.Flag) { all[f.Name] = true }
	c.Flags().VisitAll(add)
	c.PersistentFlags().VisitAll(add)
	for _, sub := range c.Commands() {
		for name := range flagsOf(sub) {
			all[name] = true
		}
	}
	return all
}

// programs returns the flags of our programs.
func programs() map[string]map[string]bool {
	all := map[string]map[string]bool{
		"watcher": flagsOf(watcher.Command(nil)), "fetcher": flagsOf(fetcher.Command()), "writer": flagsOf(writer.Command()),
		"keeper": flagsOf(keeper.Command(nil)), "curlctl": flagsOf(curlctl.Command("curlctl")),
	}
	whole, config := &cobra.Command{}, local.DefaultConfig()
	config.BindFlags(whole.Flags())
	all["curl-me-that"] = flagsOf(whole)
	return all
}

var _ = It("Every page names existing make targets and flags", func() {
	targets := map[string]bool{}
	for _, match := range makeTarget.FindAllStringSubmatch(string(text(filepath.Join(root, "Makefile"))), -1) {
		targets[match[1]] = true
	}
	flags := programs()
	known := map[string]bool{}
	for _, name := range foreignFlags {
		known[name] = true
	}
	for _, of := range flags {
		for name := range of {
			known[name] = true
		}
	}
	files := suitetest.Must(Paths(os.DirFS(root)))
	commands, unknown := 0, []string{}
	check := func(exists bool, file, command string) {
		commands++
		if !exists {
			unknown = append(unknown, file+": "+command)
		}
	}
	for _, file := range files {
		if filepath.Ext(file) != ".md" {
			continue
		}
		page := text(filepath.Join(root, file))
		for _, match := range makeCommand.FindAllStringSubmatch(string(page), -1) {
			check(targets[match[1]], file, "make "+match[1])
		}
		for _, match := range started.FindAllStringSubmatch(string(page), -1) {
			for _, flag := range flagInLine.FindAllStringSubmatch(match[2], -1) {
				check(flags[match[1]][flag[1]], file, match[1]+" --"+flag[1])
			}
		}
		for _, match := range flagAlone.FindAllStringSubmatch(string(page), -1) {
			check(known[match[1]], file, "--"+match[1])
		}
	}
	Expect(unknown).To(BeEmpty())
	Expect(commands).To(BeNumerically(">", 100), "commands found")
})

var _ = It("Pages, runbooks and alerts have only valid commands of curlctl", func() {
	found := 0
	for _, file := range suitetest.Must(Paths(os.DirFS(root))) {
		if !slices.Contains([]string{".md", ".yaml", ".txt", ".tmpl", ".json"}, filepath.Ext(file)) ||
			strings.Contains(file, "/testdata/") {
			continue
		}
		for line, whole := range documented(string(text(filepath.Join(root, file)))) {
			found++
			Expect(parse(line, whole)).To(BeEmpty(), "%s: %s", file, line)
		}
	}
	Expect(found).To(BeNumerically(">=", 80))
})

// documented returns the commands of a text (true: on its own line).
func documented(text string) map[string]bool {
	lines := map[string]bool{}
	for _, match := range inSentence.FindAllStringSubmatch(text, -1) {
		lines[match[1]] = false
	}
	for _, match := range ownLine.FindAllStringSubmatch(text, -1) {
		lines[match[1]] = true
	}
	return lines
}

// parse returns the error of a command line, or an empty string. A command within a sentence may lack its argument.
func parse(line string, whole bool) string {
	line, _, _ = strings.Cut(line, " #")
	for _, end := range []string{" | ", " & ", "; ", " > ", " && ", " …", ")"} {
		line, _, _ = strings.Cut(line, end)
	}
	line = strings.TrimPrefix(strings.TrimPrefix(line, "kubectl curl-me-that"), "bin/")
	args := strings.Fields(strings.TrimPrefix(line, "curlctl"))
	for i, arg := range args {
		args[i] = placeholder.ReplaceAllString(strings.Trim(arg, `"'\`), "${1}1")
	}
	root := curlctl.Command("curlctl")
	cmd, rest, err := root.Find(args)
	if err != nil {
		return err.Error()
	}
	if cmd == root && len(rest) > 0 && !strings.HasPrefix(rest[0], "-") {
		return "there is no such command"
	}
	if err := cmd.ParseFlags(rest); err != nil && (whole || !strings.Contains(err.Error(), "needs an argument")) {
		return err.Error()
	}
	if !whole && len(cmd.Flags().Args()) == 0 {
		return ""
	}
	if err := cmd.ValidateArgs(cmd.Flags().Args()); err != nil {
		return err.Error()
	}
	return ""
}
