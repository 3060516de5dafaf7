package acceptance_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"html"
	"io"
	"maps"
	"net/http"
	"net/http/cookiejar"
	"os/exec"
	"regexp"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/origin"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/deploy/testkit/kubetest"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/proto/annotation"
	watchv1 "github.com/kv8s/curl-me-that/proto/watch/v1alpha1"
)

// mistake is a user error, and the text that every screen shows about it.
type mistake struct {
	traits []world.Trait
	// state and reason of the key. Without a key, the mistake is about the whole object.
	key, state, reason string
	// sentence is part of the text on all screens.
	sentence string
	// watcher is the spec of a Watcher with the same mistake. It is empty if the schema rejects it, or if only
	// an annotation can have it. watcherReason overrides reason for the Watcher.
	watcher, watcherReason string
}

const (
	failing, refused, ok, ignored = "failing", "refused", "ok", "ignored"
	invalid                       = "InvalidAnnotation"
)

func asking(pairs string, more ...world.Trait) []world.Trait {
	return append(more, world.Asking(pairs))
}

func annotated(name, value string) world.Trait { return world.Annotated("x-kv8s.io/"+name, value) }

// source returns the spec of a Watcher.
func source(key, url, more string) string {
	return `"sources":[{"key":"` + key + `","url":"` + url + `"` + more + `}]`
}

// Each mistake stands for a way in which a sentence reaches the screens. The tables of packages annotation and
// condition have all sentences. All mistakes but those of a good or an ignored key have an Event.

// wrongAnnotations returns mistakes that the watcher finds.
func wrongAnnotations(good string) map[string]mistake {
	found := func(sentence string, traits ...world.Trait) mistake {
		return mistake{traits: traits, state: failing, reason: invalid, sentence: sentence}
	}
	option := func(name, value, sentence string) mistake {
		return found(sentence, world.Asking("k="+good), annotated(name, value))
	}
	expression := option("curl-expect", "k=size(", "annotation curl-expect, rule 1 of key k: the expression is incomplete")
	expression.watcher = source("k", good, `,"expect":[{"rule":"size("}]`)
	expression.watcherReason = watchv1.ReasonInvalidExpression
	short := option("curl-refresh", "100ms", "curl-refresh is 100ms, below the minimum of 10s; 10s is used")
	short.state, short.reason = ok, "AnnotationAdjusted"
	return map[string]mistake{
		"typo": found("annotation x-kv8s.io/curl-me-thatt is unknown and has no effect; did you mean curl-me-that?",
			annotated("curl-me-thatt", "k="+good)),
		"no-prefix": found("did you mean x-kv8s.io/curl-me-that?", world.Annotated("curl-me-that", "k="+good)),
		"label": found("label x-kv8s.io/curl-me-that has no effect; did you mean the annotation curl-me-that?",
			world.Labelled("x-kv8s.io/curl-me-that", "k")),
		"password":   found("the url contains a user name or a password", world.Asking("k=http://me:secret@example.com/")),
		"digest":     option("curl-sha256", "abab", "does not match expected format key=<64 hexadecimal digits>"),
		"short":      short,
		"bad-expect": expression,
	}
}

// wrongAddresses returns mistakes that the fetcher finds.
func wrongAddresses(o *origin.Server, good string) map[string]mistake {
	fails := func(url, reason, sentence string) mistake {
		return mistake{
			traits: asking("k=" + url), key: "k", state: failing, reason: reason, sentence: sentence,
			watcher: source("k", url, ""),
		}
	}
	page := func(path string) *origin.Page { return o.Page(path).Says("good") }
	secure := origin.StartTLS(nil)
	DeferCleanup(secure.Close)
	const metadata = "http://169.254.169.254/"
	digest := strings.Repeat("ab", 32)
	otherSum := fails(good, "DigestMismatch", "which is not the one in curl-sha256")
	otherSum.traits = append(otherSum.traits, annotated("curl-sha256", "k="+digest))
	otherSum.watcher = source("k", good, `,"sha256":"`+digest+`"`)
	return map[string]mistake{
		"missing": fails(o.Page("/missing").URL(), "BadStatus", "localhost responded with 404"),
		"slow": fails(page("/slow").Takes(time.Minute).URL(), "Timeout",
			"localhost did not respond within 2s, a limit of the operator; use a faster URL, or ask the operator to raise it"),
		"loop": fails(o.Page("/loop").Fails(http.StatusFound).With("Location", "/loop").URL(),
			"TooManyRedirects", "localhost redirected more than 5 times"),
		"other-name": fails(secure.Page("/").URL(), "TLSFailed",
			"the TLS certificate of localhost cannot be trusted: it was issued for another host name"),
		"binary": {
			traits: asking("k=" + o.Page("/binary").Serves([]byte{0xff, 0xfe}).URL()), key: "k", state: ok,
			sentence: "in binaryData because it is not text",
		},
		"other-sum": otherSum,
		"metadata": fails(metadata, "AddressDenied",
			"fetching from 169.254.169.254 is not allowed: its address is not public"),
		"closed": fails("http://"+closedPort(), "ConnectFailed",
			"could not connect to localhost: connection refused"),
		"gzip": fails(page("/gzip").With("Content-Encoding", "gzip").URL(), "BadResponse",
			"localhost announced gzip (Content-Encoding), but the body is not valid gzip"),
	}
}

// wrongObjects returns mistakes that the writer finds, and objects that are ignored.
func wrongObjects(o *origin.Server, good string) map[string]mistake {
	big := strings.Repeat("x", 900_000)
	half := o.Page("/half").Says(big[:300_000]).URL()
	of := func(state, reason, sentence, url string, traits ...world.Trait) mistake {
		return mistake{traits: asking("k="+url, traits...), key: "k", state: state, reason: reason, sentence: sentence}
	}
	full := of(refused, "BodyTooLarge", "the ConfigMap would exceed 1 MiB with the body for key k (300,000 bytes)",
		half, world.Holding("rest", big))
	full.watcher = `"configData":{"rest":"` + big + `"},` + source("k", half, "")
	return map[string]mistake{
		// A Watcher has its own specs for this one, in watchers/configmap_test.go.
		"exists": of(refused, "KeyExists", "key k already exists and is not managed by curl-me-that; remove it",
			good, world.Holding("k", "mine")),
		"full": full,
		"immutable": of(refused, "Immutable",
			"the ConfigMap is immutable, so key k cannot be written; delete it and create it again", good, world.Immutable()),
		"ignored":   of(ignored, "", "it has the label reconciler=ignore", good, world.Labelled("reconciler", "ignore")),
		"suspended": of(ignored, "", "it is suspended", good, annotated("curl-suspend", "true")),
		"policy": {
			traits: asking("denied=" + good), key: "denied", state: refused, reason: "WriteFailed",
			sentence: "the API server refused to write the body from localhost, perhaps by an admission policy or " +
				"webhook; ask the operator, the log of the writer says which",
			watcher: source("denied", good, ""),
		},
	}
}

var _ = Describe("A mistake", func() {
	It("has the same state and sentence on all eight screens", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{Flags: map[string][]string{
			world.Watcher: {"--min-refresh=10s"},
			world.Fetcher: {"--min-refresh=10s", "--header-timeout=2s", "--max-attempts=1"}, // so `failures` lists them at once
		}})
		watchers := kubetest.Watchers(ctx, GinkgoTB(), env.Cluster.Config).In(w.Namespace)
		w.Launch(ctx, world.Keeper).EventuallyReady(ctx)
		w.Deny(ctx, "denied")
		good := w.Origin.Page("/good").Says("good").URL()
		mistakes := wrongAnnotations(good)
		maps.Copy(mistakes, wrongAddresses(w.Origin, good))
		maps.Copy(mistakes, wrongObjects(w.Origin, good))
		objects := map[string]*world.ConfigMap{}
		for name, m := range mistakes {
			objects[name] = w.Create(ctx, name, m.traits...)
			if m.watcher == "" {
				continue
			}
			suitetest.Must(kubetest.ApplyWatcher(ctx, watchers, "watcher-"+name, m.watcher))
		}
		s := newScreens(ctx, w, watchers)
		for name, m := range mistakes {
			Eventually(ctx, func(g Gomega) {
				agreed := false
				defer func() {
					if !agreed {
						clear(s.lists)
					}
				}()
				s.agree(ctx, g, objects[name], m)
				agreed = true
			}).Should(Succeed(), name)
			if m.watcher != "" {
				Eventually(ctx, func(g Gomega) { s.agreeAbout(ctx, g, "watcher-"+name, m) }).Should(Succeed(), name)
			}
		}
	})

	It("in a protected namespace has the same sentence on all screens", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		s := newScreens(ctx, w, nil)
		const name, sentence = "mistake-in-kube-system", "it is protected (--protected-namespaces)"
		theirs := w.Cluster.Client.CoreV1().ConfigMaps(metav1.NamespaceSystem)
		suitetest.Must(theirs.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Name: name, Annotations: map[string]string{annotation.DefaultKey: "k=http://example.com/"},
		}}, metav1.CreateOptions{}))
		DeferCleanup(func(ctx SpecContext) { Expect(theirs.Delete(ctx, name, metav1.DeleteOptions{})).To(Succeed()) })
		s.ignores(ctx, Default, metav1.NamespaceSystem, name, sentence)
	})
})

// screens show the ConfigMaps and Watchers of a world to people.
type screens struct {
	world    *world.World
	watchers *watchv1.Namespaced
	console  string
	person   *http.Client
	// lists has what commands listed about all objects, by command and name.
	lists map[string]map[string][]found
}

func newScreens(ctx context.Context, w *world.World, watchers *watchv1.Namespaced) *screens {
	GinkgoHelper()
	_, address := w.Console(ctx, "--kubeconfig="+w.Cluster.Kubeconfig, "--nats-url="+w.NATS.URL())
	s := &screens{
		world: w, watchers: watchers, console: regexp.MustCompile(`http://[^/]+`).FindString(address),
		person: &http.Client{Jar: suitetest.Must(cookiejar.New(nil))}, lists: map[string]map[string][]found{},
	}
	Expect(suitetest.Must(s.person.Get(address)).Body.Close()).To(Succeed())
	return s
}

// found is a key or object in the output of curlctl.
type found struct{ Key, State, Reason, Message, Outcome, Detail, Now string }

// view is the output of curlctl status about an object.
type view struct {
	Problem, Ignored string
	Notes            []string
	Keys             []found
	Timeline         []struct{ What, Detail string }
}

// agree expects that all screens describe the mistake in the same words.
func (s *screens) agree(ctx context.Context, g Gomega, cm *world.ConfigMap, m mistake) {
	if m.state == ignored {
		g.Expect(cm.Events(ctx)).To(BeEmpty())
		s.ignores(ctx, g, s.world.Namespace, cm.Name, m.sentence)
		return
	}
	n, at := s.world.Namespace, s.world.Namespace+"/"+cm.Name
	list := s.listed(ctx, g, "failing", n, cm.Name)
	if m.state == ok {
		g.Expect(list).To(BeEmpty(), "failing")
		s.agreeOnGood(ctx, g, cm, m)
		return
	}
	g.Expect(list).To(HaveLen(1), "failing")
	sentence := list[0].Message
	g.Expect(sentence).To(ContainSubstring(m.sentence), "failing")
	g.Expect(list[0]).To(Equal(found{Key: m.key, State: m.state, Reason: m.reason, Message: sentence}), "failing")
	g.Expect(cm.Events(ctx, m.reason)).To(ContainElement(HaveField("Note", ContainSubstring(sentence))), "Event")
	shown := "Problem "
	if m.key != "" {
		entry := cm.Status(ctx, m.key)
		g.Expect(entry.Error).To(Equal(m.reason), "annotation")
		g.Expect(entry.Why().Message).To(Equal(sentence), "annotation")
		shown = m.state + " " + m.reason + " .* " + m.key + " .* "
	} else if _, own := cm.Get(ctx).Annotations[annotation.DefaultKey]; own { // others get no annotation of ours
		g.Expect(cm.Problem(ctx)).To(HaveField("Message", sentence), "annotation")
	}
	failures := s.listed(ctx, g, "failures --limit=1000", n, cm.Name)
	if m.key != "" && m.state == failing {
		g.Expect(failures).To(ConsistOf(
			found{Key: m.key, Reason: m.reason, Message: sentence, Now: m.state}), "failures")
	} else { // it lists only failed fetches
		g.Expect(failures).To(BeEmpty(), "failures")
	}
	g.Expect(s.items(ctx, g, "check", at)).
		To(ContainElement(And(HaveField("Outcome", m.reason), HaveField("Detail", sentence))), "check")
	status := s.status(ctx, g, at)
	if m.key != "" {
		g.Expect(status.Keys).To(ConsistOf(list[0]), "status")
	} else {
		g.Expect(status.Problem).To(Equal(sentence), "status")
	}
	g.Expect(s.page(ctx, g, at)).To(MatchRegexp(shown+regexp.QuoteMeta(sentence)), "console")
}

// agreeOnGood expects that no screen shows a harmless mistake as a failure.
func (s *screens) agreeOnGood(ctx context.Context, g Gomega, cm *world.ConfigMap, m mistake) {
	at, status := s.world.Namespace+"/"+cm.Name, s.status(ctx, g, s.world.Namespace+"/"+cm.Name)
	g.Expect(cm.Status(ctx, "k").HasBody()).To(BeTrue(), "annotation")
	g.Expect(status.Keys).To(ConsistOf(found{Key: "k", State: ok}), "status")
	g.Expect(s.listed(ctx, g, "failures --limit=1000", s.world.Namespace, cm.Name)).To(BeEmpty(), "failures")
	outcomes := s.items(ctx, g, "check", at)
	if m.reason == "" {
		g.Expect(cm.Events(ctx)).To(BeEmpty(), "Event")
		g.Expect(status.Timeline).To(ContainElement(HaveField("Detail", ContainSubstring(m.sentence))), "status")
		g.Expect(outcomes).To(ConsistOf(HaveField("Outcome", "fetched")), "check")
		g.Expect(s.page(ctx, g, at)).To(ContainSubstring(m.sentence), "console")
		return
	}
	g.Expect(cm.Events(ctx, m.reason)).To(ContainElement(HaveField("Note", m.sentence)), "Event")
	g.Expect(status.Notes).To(ConsistOf(m.sentence), "status")
	g.Expect(outcomes).To(ContainElement(And(HaveField("Outcome", m.reason), HaveField("Detail", m.sentence))), "check")
	g.Expect(s.page(ctx, g, at)).To(ContainSubstring("Note "+m.sentence), "console")
}

// ignores expects that all screens tell why an object is ignored, and that none shows a failure.
func (s *screens) ignores(ctx context.Context, g Gomega, namespace, name, why string) {
	at := namespace + "/" + name
	for _, command := range []string{"failing", "failures --limit=1000"} {
		g.Expect(s.listed(ctx, g, command, namespace, name)).To(BeEmpty(), command)
	}
	g.Expect(s.listed(ctx, g, "wants", namespace, name)).
		To(ConsistOf(found{Key: "k", State: ignored, Message: why}), "wants")
	g.Expect(s.items(ctx, g, "check", at)).
		To(ConsistOf(And(HaveField("Outcome", ignored), HaveField("Detail", why))), "check")
	g.Expect(s.status(ctx, g, at).Ignored).To(Equal(why), "status")
	g.Expect(s.page(ctx, g, at)).To(ContainSubstring("Ignored "+why), "console")
}

// agreeAbout expects the same words about a Watcher as about a ConfigMap.
func (s *screens) agreeAbout(ctx context.Context, g Gomega, name string, m mistake) {
	at, reason := s.world.Namespace+"/"+name, cmp.Or(m.watcherReason, m.reason)
	found, err := s.watchers.Get(ctx, name, metav1.GetOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	fitting := And(HaveField("Reason", ContainSubstring(reason)), HaveField("Message", ContainSubstring(m.sentence)))
	g.Expect(found.Status.Conditions).To(ContainElement(fitting), "condition")
	g.Expect(s.curlctl(ctx, "status", at)).To(And(ContainSubstring(reason+": "), ContainSubstring(m.sentence)), "status")
	g.Expect(s.page(ctx, g, at)).To(MatchRegexp(reason+"[: ].*"+regexp.QuoteMeta(m.sentence)), "console")
	g.Expect(s.world.Events(ctx)).To(ContainElement(And(HaveField("Regarding.Kind", watchv1.Kind),
		HaveField("Regarding.Name", name), HaveField("Note", ContainSubstring(m.sentence)))), "Event")
}

// status returns the output of curlctl status about an object.
func (s *screens) status(ctx context.Context, g Gomega, at string) (v view) {
	g.Expect(json.Unmarshal([]byte(s.curlctl(ctx, "status", at, "-o", "json")), &v)).To(Succeed())
	return v
}

// listed returns what a command lists about an object. It lists all objects of the namespace at once, because a
// process for each would take most of the time of the spec.
func (s *screens) listed(ctx context.Context, g Gomega, command, namespace, name string) []found {
	list, known := s.lists[command+namespace]
	if !known {
		var all struct {
			Items []struct {
				found
				ConfigMap string
			}
		}
		out := s.curlctl(ctx, append(strings.Fields(command), "-n", namespace, "-o", "json")...)
		g.Expect(json.Unmarshal([]byte(out), &all)).To(Succeed(), command)
		list = map[string][]found{}
		for _, item := range all.Items {
			list[item.ConfigMap] = append(list[item.ConfigMap], item.found)
		}
		s.lists[command+namespace] = list
	}
	return list[name]
}

// items returns the list that curlctl prints.
func (s *screens) items(ctx context.Context, g Gomega, args ...string) []found {
	var list struct{ Items []found }
	g.Expect(json.Unmarshal([]byte(s.curlctl(ctx, append(args, "-o", "json")...)), &list)).To(Succeed(), args[0])
	return list.Items
}

// curlctl returns the output of curlctl, whatever its exit code.
func (s *screens) curlctl(ctx context.Context, args ...string) string {
	out, _ := exec.CommandContext(ctx, s.world.Program("curlctl"), append(args,
		"--kubeconfig="+s.world.Cluster.Kubeconfig, "--nats-url="+s.world.NATS.URL())...).Output() // exit code 7 of check
	return string(out)
}

// page returns the text of the console page of an object.
func (s *screens) page(ctx context.Context, g Gomega, at string) string {
	request := suitetest.Must(http.NewRequestWithContext(ctx, http.MethodGet, s.console+"/objects/"+at, nil))
	response, err := s.person.Do(request)
	g.Expect(err).NotTo(HaveOccurred())
	body, err := io.ReadAll(response.Body)
	g.Expect(errors.Join(err, response.Body.Close())).To(Succeed())
	_, main, _ := strings.Cut(string(body), "<main")
	text := html.UnescapeString(regexp.MustCompile(`<[^>]*>`).ReplaceAllString(main, " "))
	return strings.Join(strings.Fields(text), " ")
}

// closedPort returns an address without a listener.
func closedPort() string { return strings.Replace(env.FreeAddress(), "127.0.0.1", "localhost", 1) }
