package acceptance_test

import (
	"context"
	"encoding/json"
	"net/http"
	"os/exec"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
)

// mistake is one that people make, and what every screen says about it.
type mistake struct {
	traits []world.Trait
	// state and reason of the key; an empty key is about the whole object.
	key, state, reason string
	// sentence is part of what the Event, the status annotation, failing, status and check say.
	sentence string
}

var _ = Describe("A mistake", func() {
	It("has the same state and sentence in the Event, the status, failing, wants, status and check", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		asking := func(pairs string, more ...world.Trait) []world.Trait { return append(more, world.Asking(pairs)) }
		annotated := func(name, value string) world.Trait { return world.Annotated("x-kv8s.io/"+name, value) }
		good := w.Origin.Page("/good").Says("good").URL()
		missing, down := w.Origin.Page("/missing").URL(), w.Origin.Page("/down").Fails(http.StatusForbidden).URL()
		const failing, refused, invalid = "failing", "refused", "InvalidAnnotation"
		mistakes := map[string]mistake{
			"typo-option": {
				asking("k="+good, annotated("curl-refesh", "1h")), "", failing, invalid,
				"annotation x-kv8s.io/curl-refesh is unknown and has no effect; did you mean curl-refresh?",
			},
			"typo-name": {
				[]world.Trait{annotated("curl-mee-that", "k="+good)},
				"", failing, invalid,
				"annotation x-kv8s.io/curl-mee-that is unknown and has no effect; did you mean curl-me-that?",
			},
			"no-io": {
				[]world.Trait{world.Annotated("x-kv8s/curl-me-that", "k="+good)}, "", failing, invalid, "did you mean x-kv8s.io/curl-me-that?",
			},
			"comma":     {asking("a=" + good + ", b=" + good), "", failing, invalid, "the url ends with a comma"},
			"ftp":       {asking("k=ftp://example.com/x"), "", failing, invalid, "the scheme must be http or https"},
			"twice":     {asking("k=" + good + " k=" + missing), "", failing, invalid, "the key appears twice"},
			"no-pair":   {asking("not correct"), "", failing, invalid, "does not match expected format key=url"},
			"minutes":   {asking("k="+good, annotated("curl-refresh", "5 minutes")), "", failing, invalid, "is not a duration"},
			"suspended": {asking("k="+good, annotated("curl-suspend", "yes")), "", failing, invalid, "is not true or false"},
			"digest":    {asking("k="+good, annotated("curl-sha256", "abab")), "", failing, invalid, "does not match expected format"},
			"exists":    {asking("k="+good, world.Holding("k", "mine")), "k", refused, "KeyExists", "key k already exists"},
			"immutable": {asking("k="+good, world.Immutable()), "k", refused, "Immutable", "the ConfigMap is immutable"},
			"missing":   {asking("k=" + missing), "k", failing, "BadStatus", "localhost responded with 404"},
			"forbidden": {asking("k=" + down), "k", failing, "BadStatus", "localhost responded with 403"},
			"unknown":   {asking("k=https://nosuch.example.invalid/"), "k", failing, "", "nosuch.example.invalid"},
			"metadata":  {asking("k=http://169.254.169.254/"), "k", failing, "AddressDenied", "fetching from 169.254.169.254 is not allowed"},
			"other-sum": {
				asking("k="+good, annotated("curl-sha256", "k="+strings.Repeat("ab", 32))), "k", failing, "DigestMismatch", "curl-sha256",
			},
		}
		objects := map[string]*world.ConfigMap{}
		for name, m := range mistakes {
			objects[name] = w.Create(ctx, name, m.traits...)
		}
		w.Create(ctx, "ignored", asking("k="+good, world.Labelled("reconciler", "ignore"))...)
		w.Create(ctx, "paused", asking("k="+good, annotated("curl-suspend", "true"))...)
		run := func(args ...string) string { return curlctl(ctx, w, args...) }
		for name, m := range mistakes {
			By(name)
			Eventually(ctx, func(g Gomega) {
				var list struct {
					Items []struct{ ConfigMap, Key, State, Reason, Message string }
				}
				g.Expect(json.Unmarshal([]byte(run("failing", "-n", w.Namespace, "--name", name, "-o", "json")), &list)).To(Succeed())
				g.Expect(list.Items).To(HaveLen(1), "failing")
				found := list.Items[0]
				g.Expect([]string{found.Key, found.State}).To(Equal([]string{m.key, m.state}), "failing")
				if m.reason != "" {
					g.Expect(found.Reason).To(Equal(m.reason), "failing")
				}
				g.Expect(found.Message).To(ContainSubstring(m.sentence), "failing")
				notes := ""
				for _, event := range objects[name].Events(ctx, found.Reason) {
					notes += event.Note + "\n"
				}
				g.Expect(notes).To(ContainSubstring(m.sentence), "Event")
				if m.key != "" {
					entry := objects[name].Status(ctx, m.key)
					g.Expect(entry.Error).To(Equal(found.Reason), "annotation")
					g.Expect(entry.Why().Message).To(ContainSubstring(m.sentence), "annotation")
					g.Expect(found.Message).To(Equal(entry.Why().Message), "failing")
				}
				g.Expect(run("status", w.Namespace+"/"+name, "-o", "json")).To(ContainSubstring(m.sentence), "status")
				g.Expect(run("check", w.Namespace+"/"+name, "-o", "json")).
					To(And(ContainSubstring(m.sentence), ContainSubstring(`"verdict": "`+found.Reason)), "check")
			}).Should(Succeed(), name)
		}
		ignored := run("wants", "-n", w.Namespace, "--no-headers")
		Expect(ignored).To(And(MatchRegexp(`ignored +k +ignored`), MatchRegexp(`paused +k +ignored`)))
		Expect(run("status", w.Namespace+"/ignored")).To(ContainSubstring("it has the label reconciler=ignore"))
		Expect(run("status", w.Namespace+"/paused")).To(ContainSubstring("it is suspended"))
	})
})

// curlctl returns the output of curlctl, which may find problems.
func curlctl(ctx context.Context, w *world.World, args ...string) string {
	out, _ := exec.CommandContext(ctx, w.Program("curlctl"), append(args,
		"--kubeconfig="+w.Cluster.Kubeconfig, "--nats-url="+w.NATS.URL())...).Output() // exit code 7 of check
	return string(out)
}
