package curlctl_test

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/kv8s/curl-me-that/deploy/curlctl"
	"github.com/kv8s/curl-me-that/deploy/curlctl/connect"
	"github.com/kv8s/curl-me-that/deploy/testkit/natstest"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

var kubeconfig string

func TestCurlctl(t *testing.T) {
	t.Setenv("COLUMNS", "")              // the width of the terminal that runs the specs
	kubeconfig = os.Getenv("KUBECONFIG") // only inCluster uses it
	t.Setenv("KUBECONFIG", os.DevNull)
	suitetest.Run(t, "Curlctl")
}

var _ = BeforeSuite(suitetest.ExpectNoLeaks)

var _ = Describe("The program", func() {
	It("names itself as a plugin when kubectl runs it", func(ctx SpecContext) {
		Expect(runAs(ctx, "/usr/bin/kubectl-curl_me_that", time.Now, "--help").out).
			To(ContainSubstring("kubectl curl-me-that [command]"))
		Expect(runAs(ctx, "/usr/bin/curlctl", time.Now, "--help").out).To(ContainSubstring("curlctl [command]"))
	})

	It("completes names from NATS", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.failing(ctx, cm(1), "https://a.example.com/")
		GinkgoT().Setenv("CURLMETHAT_NATS_URL", w.server.URL())
		for _, c := range []struct {
			args []string
			says string
		}{
			{[]string{"failures", "show", ""}, "1\tTimeout default/cm-001/my.data\n"},
			{[]string{"replay", ""}, "1\tTimeout"},
			{[]string{"replay", "--host", ""}, "a.example.com\n"},
			{[]string{"failures", "--name", ""}, "cm-001\n"},
			{[]string{"failures", "--reason", ""}, "Timeout\n"},
			{[]string{"status", ""}, "default/cm-001\n"},
			{[]string{"wants", "-n", ""}, "default\n"},
			{[]string{"wants", "-o", ""}, "wide\n"},
		} {
			Expect(runAs(ctx, "curlctl", time.Now, append([]string{"__complete"}, c.args...)...).out).
				To(ContainSubstring(c.says), "%v", c.args)
		}
		for _, shell := range []string{"bash", "zsh", "fish"} {
			Expect(runAs(ctx, "curlctl", time.Now, "completion", shell).out).To(ContainSubstring("curlctl"))
		}
		w.server.Stop()
		Expect(runAs(ctx, "curlctl", time.Now, "__complete", "replay", "").out).To(HavePrefix(":"))
	})

	It("uses contexts of the nats command", func(ctx SpecContext) {
		w := guarded(ctx)
		contexts(map[string]string{
			"ops": `{"url":"` + w.server.URL() + `","user":"viewer","password":"p"}`,
			"bad": `{"url":"` + w.server.URL() + `","user":"viewer","password":"wrong"}`,
		})
		run := func(args ...string) result { return runAs(ctx, "curlctl", time.Now, args...) }
		Expect(run("failures", "--context=ops").code).To(BeZero())
		Expect(run("failures", "--context=bad").code).To(Equal(3))
		Expect(run("failures", "--context=none").err).To(ContainSubstring(`unknown context "none"`))
		selected := filepath.Join(os.Getenv("XDG_CONFIG_HOME"), "nats", "context.txt")
		Expect(os.WriteFile(selected, []byte("ops"), 0o600)).To(Succeed())
		Expect(run("status").code).To(BeZero())
		Expect(run("__complete", "failures", "--context", "").out).To(HavePrefix("bad\nops\n"))

		By("finding the file that the demo and docker compose write beside the kubeconfig")
		contexts(nil)
		beside := GinkgoT().TempDir()
		Expect(os.WriteFile(filepath.Join(beside, connect.BesideKubeconfig),
			[]byte(`{"url":"`+w.server.URL()+`","user":"viewer","password":"p"}`), 0o600)).To(Succeed())
		Expect(run("failures", "--kubeconfig="+filepath.Join(beside, "kubeconfig")).code).To(BeZero())
		Expect(os.WriteFile(filepath.Join(beside, "nats.crt"), []byte("no certificate"), 0o600)).To(Succeed())
		Expect(run("failures", "--kubeconfig="+filepath.Join(beside, "kubeconfig")).err).To(ContainSubstring("certificate"))
	})
})

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

// guarded runs a broker with a user app, and a user per identity with exactly its permissions.
func guarded(ctx context.Context) *world {
	GinkgoHelper()
	list := func(subjects []string, user string) string {
		quoted := make([]string, len(subjects))
		for i, s := range subjects {
			quoted[i] = `"` + strings.Replace(s, ".USER.>", "."+user+".>", 1) + `"`
		}
		return "[" + strings.Join(quoted, ", ") + "]"
	}
	var users strings.Builder
	for _, i := range connect.Identities() {
		fmt.Fprintf(&users, "{ user: %s, password: p, permissions: { publish: %s, subscribe: %s } }\n", i.Name,
			list(i.Publish, i.Name), list(i.Subscribe, i.Name))
	}
	w := configured(ctx, "authorization { users: [\n{ user: app, password: p }\n"+users.String()+"] }\n")
	w.connect = nil // each spec selects a user
	return w
}

func (w *world) as(user string) *world {
	as := *w
	as.connect = []string{"--nats-url", strings.Replace(w.server.URL(), "://", "://"+user+":p@", 1)}
	return &as
}

var _ = Describe("An identity", func() {
	var w *world
	BeforeEach(func(ctx SpecContext) {
		w = guarded(ctx)
		for i := range 3 {
			w.fail(ctx, w.timed(ctx, cm(i), "https://a.example.com/", &v1.Due{
				Cause: v1.Cause_CAUSE_RECHECK, Reported: v1.FailureClass_FAILURE_CLASS_TIMEOUT,
			}, time.Hour), v1.FailureClass_FAILURE_CLASS_TIMEOUT)
		}
	})

	// reading has commands that every identity may run.
	reading := [][]string{
		{"failures"},
		{"failures", "--summary"},
		{"failures", "--host=a.example.com", "--since=1h"},
		{"failures", "show", "1"},
		{"wants"},
		{"wants", "-A"},
		{"status"},
		{"replay", "--all", "--dry-run"},
		{"setup", "--dry-run"},
		{"__complete", "failures", "show", ""},
		{"__complete", "replay", "--host", ""},
		{"failing"},
		{"failing", "-o", "json"},
		{"__complete", "wants", "--namespace", ""},
	}
	replaying := [][]string{
		{"replay", "1"}, {"replay", "--all", "--rate=100"}, {"refetch", "default/cm-001"}, {"refetch", "--all"},
	}
	administering := [][]string{
		{"pause"}, {"resume"}, {"failures", "purge", "--since=1h", "--yes"}, {"failures", "purge", "--all", "--yes"},
	}

	can := func(ctx context.Context, user string, all ...[]string) {
		GinkgoHelper()
		for _, args := range all {
			r := w.as(user).run(ctx, args...)
			Expect(r.code).To(BeZero(), "%s: %v\n%s%s", user, args, r.out, r.err)
		}
	}
	cannot := func(ctx context.Context, user string, all ...[]string) {
		GinkgoHelper()
		before := w.lastSequences(ctx)
		for _, args := range all {
			begun := time.Now()
			r := w.as(user).run(ctx, args...)
			Expect(r.code).To(Equal(4), "%s: %v\n%s%s", user, args, r.out, r.err)
			Expect(r.err).To(ContainSubstring("this NATS user may not publish to "))
			Expect(strings.Count(r.err, "\n")).To(Equal(1))
			Expect(time.Since(begun)).To(BeNumerically("<", 8*time.Second), "less than the timeout of a request")
		}
		Expect(w.lastSequences(ctx)).To(Equal(before))
		Expect(w.failed(ctx)).To(Equal(3))
	}

	It("of a viewer sees everything and changes nothing", func(ctx SpecContext) {
		can(ctx, connect.Viewer, reading...)
		cannot(ctx, connect.Viewer, replaying...)
		cannot(ctx, connect.Viewer, administering...)
	})

	It("of a replayer also replays and refetches", func(ctx SpecContext) {
		can(ctx, connect.Replayer, reading...)
		cannot(ctx, connect.Replayer, administering...)
		can(ctx, connect.Replayer, replaying...)
	})

	It("of a replayer waits for a replay", func(ctx SpecContext) {
		r := w.as(connect.Replayer).run(ctx, "replay", "--all", "--wait", "--timeout=3s")
		Expect(r.code).To(Equal(6), r.err)
		Expect(r.out).To(ContainSubstring("3 pending"))
	})

	It("of an admin does everything", func(ctx SpecContext) {
		can(ctx, connect.Admin, reading...)
		can(ctx, connect.Admin, replaying...)
		can(ctx, connect.Admin, administering...)
	})

	It("is recognized by the doctor", func(ctx SpecContext) {
		for user, all := range map[string]string{
			connect.Viewer: "viewer", connect.Replayer: "viewer, replayer", connect.Admin: "viewer, replayer, admin",
		} {
			Expect(flat(w.as(user).run(ctx, "doctor").out)).
				To(ContainSubstring("user " + user + " has the permissions of " + all + " streams "))
		}
	})

	It("with a wrong password cannot connect, and the password is not printed", func(ctx SpecContext) {
		r := runAs(ctx, "curlctl", time.Now, "failures", "--nats-url", strings.Replace(w.server.URL(), "://",
			"://viewer:wrong@", 1))
		Expect(r.code).To(Equal(3))
		Expect(r.err).NotTo(ContainSubstring("wrong"))
	})
})

// configured runs a broker with a configuration, and creates the streams as its user app.
func configured(ctx context.Context, text string) *world {
	GinkgoHelper()
	config := filepath.Join(GinkgoT().TempDir(), "nats.conf")
	Expect(os.WriteFile(config, []byte(text), 0o600)).To(Succeed())
	s := natstest.Broker(GinkgoTB(), natstest.Options{Listen: true, ConfigFile: config})
	w := &world{server: s}
	w.use(ctx, natstest.Connect(GinkgoTB(), s, nats.UserInfo("app", "p")))
	return w.as("app")
}

// contexts creates contexts of the nats command until the spec ends.
func contexts(texts map[string]string) {
	GinkgoHelper()
	home := GinkgoT().TempDir()
	GinkgoT().Setenv("XDG_CONFIG_HOME", home)
	Expect(os.MkdirAll(filepath.Join(home, "nats", "context"), 0o700)).To(Succeed())
	for name, text := range texts {
		Expect(os.WriteFile(filepath.Join(home, "nats", "context", name+".json"), []byte(text), 0o600)).To(Succeed())
	}
}

var _ = Describe("doctor", func() {
	It("finds overdue timers", func(ctx SpecContext) {
		w := newWorld(ctx)
		for i, fires := range []time.Duration{10 * time.Minute, time.Hour} { // the clock of the spec is 20 minutes ahead
			w.timed(ctx, cm(i), "https://a.example.com/", &v1.Due{Cause: v1.Cause_CAUSE_REFRESH}, fires)
		}
		r := w.run(ctx, "doctor")
		Expect(r.code).To(Equal(7))
		Expect(flat(r.out)).To(MatchRegexp("timers +bad +1 timer of 2 overdue To fix it: restart the leader"))
	})

	It("finds a replica that is behind or offline", func(ctx SpecContext) {
		servers, addresses := natstest.Cluster(GinkgoTB())
		nc := suitetest.Must(nats.Connect(addresses, nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond),
			nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))) // the default one prints
		DeferCleanup(nc.Close)
		js := suitetest.Must(jetstream.New(nc))
		Eventually(func() (int64, error) { return pipeline.Ensure(ctx, js, pipeline.Topology{Replicas: 3}) }).
			WithTimeout(time.Minute).ShouldNot(BeZero()) // the servers may have to elect leaders again
		c := &world{server: servers[0], js: js, connect: []string{"--nats-url", addresses}}
		Eventually(func() string { return flat(c.run(ctx, "doctor").out) }).
			Should(MatchRegexp("replicas +ok +CURL_REQUESTS has 3 replicas"))
		servers[2].Stop()
		Eventually(func() string { return flat(c.run(ctx, "doctor").out) }).
			Should(MatchRegexp("replicas +bad +the replica of CURL_REQUESTS on natstest-2 is behind or offline " +
				"To fix it: check that server"))
		Expect(c.run(ctx, "doctor").code).To(Equal(7))
	})

	It("finds a paused or missing consumer", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.ok(ctx, "pause")
		Expect(flat(w.run(ctx, "doctor").out)).
			To(MatchRegexp("consumer fetcher +warning +paused, 0 messages waiting To fix it: run `curlctl resume`"))
		Expect(w.js.DeleteConsumer(ctx, pipeline.Requests, pipeline.FetcherConsumer)).To(Succeed())
		Expect(flat(w.run(ctx, "doctor").out)).To(MatchRegexp("streams +bad +.*fetcher.* To fix it: run `curlctl setup`"))
	})
})

var _ = Describe("A JetStream domain", func() {
	It("is used if the context names it, as is an API prefix", func(ctx SpecContext) {
		w := configured(ctx, `jetstream { domain: hub }
			accounts {
				APP { jetstream: enabled, users: [ { user: app, password: p } ] }
			}`)
		w.failing(ctx, cm(1), "https://a.example.com/")
		base := `{"url":"` + w.server.URL() + `","user":"app","password":"p"`
		contexts(map[string]string{
			"domain": base + `,"jetstream_domain":"hub"}`,
			"prefix": base + `,"jetstream_api_prefix":"$JS.hub.API"}`,
			"wrong":  base + `,"jetstream_domain":"nowhere"}`,
		})
		run := func(args ...string) result { return runAs(ctx, "curlctl", time.Now, args...) }
		for _, name := range []string{"domain", "prefix"} {
			for _, args := range [][]string{
				{"failures"},
				{"failures", "show", "1"},
				{"wants"},
				{"status"},
				{"replay", "1"},
				{"pause"},
				{"resume"},
				{"setup", "--dry-run"},
			} {
				r := run(append(args, "--context="+name)...)
				Expect(r.code).To(BeZero(), "%v by %s: %s", args, name, r.err)
			}
			Expect(flat(run("doctor", "--context="+name).out)).To(MatchRegexp("permissions +ok"))
		}
		By("trying no other server if the selected one does not respond")
		r := run("failures", "--context=wrong")
		Expect(r.code).NotTo(BeZero())
		Expect(strings.Count(r.err, "\n")).To(Equal(1), r.err)
	})
})

var _ = It("doctor --kubernetes names the binding that a service account lacks", func(ctx SpecContext) {
	client, config, namespace := inCluster(ctx)
	objects := suitetest.Must(dynamic.NewForConfig(config))
	// The rights of the chart, with names and a namespace of this spec.
	text := suitetest.Must(os.ReadFile("../docker/manifests/rights.yaml"))
	renamed := strings.NewReplacer("curl-me-that-", namespace+"-", "namespace: curl-me-that", "namespace: "+namespace)
	for document := range strings.SplitSeq(renamed.Replace(string(text)), "\n---\n") {
		o := &unstructured.Unstructured{}
		Expect(yaml.Unmarshal([]byte(document), &o.Object)).To(Succeed())
		resource := map[string]string{
			"ServiceAccount": "serviceaccounts", "Role": "roles", "RoleBinding": "rolebindings",
			"ClusterRole": "clusterroles", "ClusterRoleBinding": "clusterrolebindings",
		}[o.GetKind()]
		if resource == "" {
			continue
		}
		kind := o.GroupVersionKind()
		at := objects.Resource(schema.GroupVersionResource{Group: kind.Group, Version: kind.Version, Resource: resource}).
			Namespace(o.GetNamespace())
		body := suitetest.Must(o.MarshalJSON())
		_, err := at.Patch(ctx, o.GetName(), types.ApplyPatchType, body,
			metav1.PatchOptions{FieldManager: "spec", Force: new(true)})
		Expect(err).NotTo(HaveOccurred(), o.GetName())
		DeferCleanup(func(ctx SpecContext) { _ = at.Delete(ctx, o.GetName(), metav1.DeleteOptions{}) })
	}
	w := newWorld(ctx)
	doctor := func() result {
		return w.run(ctx, "doctor", "--kubernetes="+namespace+"/"+namespace, "--kubeconfig", os.Getenv("KUBECONFIG"))
	}
	Eventually(ctx, func() int { return doctor().code }).Should(Equal(0), "the API server knows the bindings")
	Expect(strings.Count(doctor().out, "has its rights")).To(Equal(3))

	Expect(doctor().out).NotTo(ContainSubstring("egress proxy"))
	Expect(client.CoreV1().Pods(namespace).Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "fetcher", Labels: map[string]string{
			"app.kubernetes.io/component": "fetcher", "app.kubernetes.io/instance": namespace,
		}},
		Spec: corev1.PodSpec{
			ServiceAccountName: namespace + "-watcher",
			Containers:         []corev1.Container{{Name: "fetcher", Image: "any", Args: []string{"--proxy-resolves"}}},
		},
	}, metav1.CreateOptions{})).Error().NotTo(HaveOccurred())
	Expect(doctor().code).To(Equal(0))
	Expect(flat(doctor().out)).To(ContainSubstring(
		"names are checked by fetchers, and addresses by the egress proxy: let it deny private addresses"))

	Expect(client.RbacV1().ClusterRoleBindings().Delete(ctx, namespace+"-writer", metav1.DeleteOptions{})).To(Succeed())
	Eventually(ctx, func() int { return doctor().code }).Should(Equal(7))
	Expect(flat(doctor().out)).To(And(
		ContainSubstring(namespace+"-writer may not get configmaps, patch configmaps, create events, get events, "+
			"patch events"),
		ContainSubstring("restore ClusterRoleBinding "+namespace+"-writer")))

	Expect(client.CoreV1().ServiceAccounts(namespace).Delete(ctx, namespace+"-watcher",
		metav1.DeleteOptions{})).To(Succeed())
	Expect(doctor().out).To(ContainSubstring("there is no service account"))
})
