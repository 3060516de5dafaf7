package curlctl_test

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kv8s/curl-me-that/deploy/curlctl"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// steering sets the title and colour of a terminal, and clears it. The last byte is an 8-bit control character.
const steering = "x\x1b]0;PWNED\a\x1b[31m\x1b[2J\r\x00\x7f\u009b31m$(touch x)\x9b"

// control returns the text from its first control character on, other than line breaks and tabs, or the whole text
// if it is not UTF-8.
func control(text string) string {
	if at := strings.IndexFunc(text, func(r rune) bool {
		return r < ' ' && r != '\n' && r != '\t' || r >= 0x7f && r <= 0x9f
	}); at >= 0 {
		return text[at:]
	}
	if !utf8.ValidString(text) {
		return text
	}
	return ""
}

// hostileWorld returns a world with hostile names, keys, reasons, hosts and texts in its streams.
func hostileWorld(ctx context.Context) *world {
	GinkgoHelper()
	w := newWorld(ctx)
	text := strings.ToValidUTF8(steering, "")
	for _, key := range []pipeline.Key{
		{Namespace: "ns" + steering, Name: "cm" + steering, Key: "k" + steering},
		{Namespace: "ns", Name: "cm", Key: "k" + steering},
	} {
		due := &v1.Due{
			Cause: v1.Cause_CAUSE_RETRY, Attempts: 1, WaitsFor: v1.WaitsFor_WAITS_FOR_PAUSE,
			Reported: v1.FailureClass_FAILURE_CLASS_BAD_STATUS, StatusCode: 429, FirstFailedAt: timestamppb.Now(),
		}
		url := "https://" + text + ".example.com/" + text
		w.hostileFailure(ctx, key, w.timed(ctx, key, url, due, time.Hour, func(w *v1.Want) {
			w.Namespace, w.Name, w.Key, w.Uid, w.Sha256 = text, text, text, text, text
		}))
	}
	unread := pipeline.Key{Namespace: "ns", Name: "cm", Key: "unread" + steering}
	Expect(w.js.Publish(ctx, unread.WantSubject(), []byte(steering))).Error().NotTo(HaveOccurred())
	return w
}

func (w *world) hostileFailure(ctx context.Context, key pipeline.Key, want *v1.Want) {
	GinkgoHelper()
	text := strings.ToValidUTF8(steering, "")
	letter := &v1.DeadLetter{
		Want: want, Subject: text, Traceparent: text, Snippet: []byte(text), LastFailedAt: timestamppb.Now(),
		Failure: &v1.Failure{Class: v1.FailureClass_FAILURE_CLASS_BAD_STATUS, Host: text, StatusCode: 503},
	}
	payload := suitetest.Must(proto.Marshal(letter))
	Expect(w.js.Publish(ctx, key.DeadLetterSubject("Timeout", "host"+steering), payload)).Error().NotTo(HaveOccurred())
	for _, reason := range []string{"reason" + steering, "Timeout"} {
		Expect(w.js.Publish(ctx, key.DeadLetterSubject(reason, "host"+steering), []byte(steering))).Error().
			NotTo(HaveOccurred())
	}
}

// examples returns arguments for every command in the hostile world. It writes files to dir.
func examples(dir string) map[string][][]string {
	GinkgoHelper()
	manifest := filepath.Join(dir, "manifest.json")
	text := suitetest.Must(json.Marshal(&corev1.ConfigMap{
		TypeMeta: metav1.TypeMeta{Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: steering, Name: steering, Annotations: map[string]string{
				"x-kv8s.io/curl-me-that":     steering,
				"x-kv8s.io/curl-" + steering: steering,
			},
		},
	}))
	Expect(os.WriteFile(manifest, text, 0o600)).To(Succeed())

	none := [][]string{{}}
	return map[string][][]string{
		"curlctl":                none,
		"curlctl failing":        none,
		"curlctl failures":       {{}, {"--summary"}, {"--limit=0"}},
		"curlctl failures show":  {{"1"}, {"2"}, {"3"}, {"99"}},
		"curlctl failures purge": {{"--since=1h"}},
		"curlctl replay":         {{"--all", "--dry-run"}, {"1", "2", "3"}, {"--all", "--wait", "--timeout=100ms"}},
		"curlctl refetch":        {{"--all"}, {"ns/cm"}, {"ns/" + steering}},
		"curlctl status":         {{}, {"ns/cm", "--kubeconfig=/nonexistent"}},
		"curlctl wants":          {{}, {"--stale"}},
		"curlctl pause":          {{"--for=1h"}},
		"curlctl resume":         none,
		"curlctl check":          {{"-f", manifest}, {"ns/cm", "--kubeconfig=/nonexistent"}},
		"curlctl hand-over":      {{"--to=" + steering}, {"--from=a.a/x", "--to=b.b/x", "--kubeconfig=/nonexistent"}},
		"curlctl history":        {{"ns/cm", "--kubeconfig=/nonexistent"}},
		"curlctl diff":           {{"ns/cm", steering, "--kubeconfig=/nonexistent"}},
		"curlctl rollback":       {{"ns/cm", steering, "--to", steering, "--kubeconfig=/nonexistent"}},
		"curlctl accept":         {{"ns/cm", steering, "--kubeconfig=/nonexistent"}},
		"curlctl unpin":          {{"ns/cm", steering, "--kubeconfig=/nonexistent"}},
		"curlctl setup":          {{"--dry-run"}, {}, {"--watch"}},
		"curlctl doctor":         none,
		"curlctl identities":     {{"--out", filepath.Join(dir, "identities")}},
		"curlctl hooks":          {{"--config", "/nonexistent"}},
		"curlctl console":        none,
	}
}

var _ = Describe("Tenants and servers", func() {
	// runAs checks the output of every run of curlctl in this suite.
	It("cannot steer the terminal with any command", func(ctx SpecContext) {
		GinkgoT().Setenv("KUBECONFIG", "")
		GinkgoT().Setenv("COLUMNS", "200")
		known, shown := examples(GinkgoT().TempDir()), map[string]bool{}
		for _, cmd := range commands(curlctl.Command("curlctl")) {
			runs, found := known[cmd.CommandPath()]
			Expect(found).To(BeTrue(), "%s has no example", cmd.CommandPath())
			delete(known, cmd.CommandPath())
			w := hostileWorld(ctx)
			for _, format := range []string{"table", "wide", "json", "name"} {
				for _, args := range runs {
					path := strings.Fields(cmd.CommandPath())[1:]
					r := w.runBriefly(ctx, slices.Concat(path, args, []string{"-o", format})...)
					if strings.Contains(r.out+r.err, "PWNED") {
						shown[cmd.CommandPath()] = true
					}
				}
			}
		}
		Expect(known).To(BeEmpty(), "examples of commands that do not exist")
		Expect(slices.Sorted(maps.Keys(shown))).To(Equal([]string{
			"curlctl check", "curlctl failing", "curlctl failures",
			"curlctl failures show",
			"curlctl refetch", "curlctl status", "curlctl wants",
		}), "commands that have shown hostile text")
	})

	It("cannot put code on the command line through completion", func(ctx SpecContext) {
		w := hostileWorld(ctx)
		w.failing(ctx, cm(1), "https://a.example.com/")
		GinkgoT().Setenv("CURLMETHAT_NATS_URL", w.server.URL())
		offered := map[string]bool{}
		for _, cmd := range commands(curlctl.Command("curlctl")) {
			path := strings.Fields(cmd.CommandPath())[1:]
			asked := [][]string{{""}}
			ask := func(f *pflag.Flag) { asked = append(asked, []string{"--" + f.Name, ""}) }
			cmd.LocalFlags().VisitAll(ask)
			cmd.InheritedFlags().VisitAll(ask)
			for _, args := range asked {
				r := runAs(ctx, "curlctl", time.Now, slices.Concat([]string{cobra.ShellCompRequestCmd}, path, args)...)
				for line := range strings.Lines(r.out) {
					word, _, _ := strings.Cut(strings.TrimSpace(line), "\t")
					Expect(word).To(MatchRegexp(`^[-A-Za-z0-9._:/=]*$`), "%v %v", path, args)
					offered[word] = true
				}
			}
		}
		Expect(slices.Collect(maps.Keys(offered))).
			To(ContainElements("a.example.com", "cm-001", "default", "default/cm-001", "1"))
	})
})

// commands returns a command and its subcommands.
func commands(cmd *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{cmd}
	for _, sub := range cmd.Commands() {
		all = append(all, commands(sub)...)
	}
	return all
}

// runBriefly runs curlctl, and stops an endless command.
func (w *world) runBriefly(ctx context.Context, args ...string) result {
	GinkgoHelper()
	limit := 20 * time.Second
	if slices.Contains(args, "console") || slices.Contains(args, "--watch") {
		limit = 300 * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return w.run(ctx, args...)
}
