package curlctl_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kv8s/curl-me-that/deploy/curlctl"
)

// Commands in pages: on their own line, and as code within a sentence.
var (
	ownLine     = regexp.MustCompile(`(?m)^\s*(?:\$ )?((?:kubectl curl-me-that|(?:bin/)?curlctl) [^\n]*)$`)
	inSentence  = regexp.MustCompile("`((?:kubectl curl-me-that|(?:bin/)?curlctl) [^`\n]+)`")
	placeholder = regexp.MustCompile(`(^|=)(?:ID|\[ID…\]|N)$`)
)

// TestDocumentedCommandsAreValid parses each command of curlctl in pages, runbooks and alerts, with its flags and
// arguments.
func TestDocumentedCommandsAreValid(t *testing.T) {
	root := filepath.Join("..", "..")
	n := 0
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && slices.Contains([]string{".git", ".cache", "testdata", "bin"}, entry.Name()) {
			return filepath.SkipDir
		}
		switch filepath.Ext(path) {
		case ".md", ".yaml", ".txt", ".tmpl", ".json":
		default:
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for line, whole := range documented(string(text)) {
			n++
			if wrong := parse(line, whole); wrong != "" {
				t.Errorf("%s: %s\n\t%s", path, line, wrong)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if n < 80 {
		t.Errorf("found only %d commands", n)
	}
}

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
