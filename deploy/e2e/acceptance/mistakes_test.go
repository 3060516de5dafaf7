package acceptance_test

import (
	"context"
	"encoding/json"
	"html"
	"io"
	"maps"
	"net"
	"net/http"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/origin"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/process"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/suitetest"
	watchv1 "github.com/kv8s/curl-me-that/proto/watch/v1alpha1"
)

// mistake is one that people make, and what every screen says about it.
type mistake struct {
	traits []world.Trait
	// state and reason of the key; an empty key is about the whole object.
	key, state, reason string
	// sentence is part of what the Event, the status annotation, failing, status, check and the console say.
	sentence string
}

const (
	failing, refused, ok = "failing", "refused", "ok"
	invalid              = "InvalidAnnotation"
)

func asking(pairs string, more ...world.Trait) []world.Trait {
	return append(more, world.Asking(pairs))
}

func annotated(name, value string) world.Trait { return world.Annotated("x-kv8s.io/"+name, value) }

// wrongAnnotations are mistakes that the watcher finds.
func wrongAnnotations(good string) map[string]mistake {
	option := func(name, value, sentence string) mistake {
		return mistake{asking("k="+good, annotated(name, value)), "", failing, invalid, sentence}
	}
	pairs := func(text, sentence string) mistake { return mistake{asking(text), "", failing, invalid, sentence} }
	bare := func(trait world.Trait, sentence string) mistake {
		return mistake{[]world.Trait{trait}, "", failing, invalid, sentence}
	}
	return map[string]mistake{
		"typo-name": bare(annotated("curl-me-thatt", "k="+good),
			"annotation x-kv8s.io/curl-me-thatt is unknown and has no effect; did you mean curl-me-that?"),
		"no-io":     bare(world.Annotated("x-kv8s/curl-me-that", "k="+good), "did you mean x-kv8s.io/curl-me-that?"),
		"no-prefix": bare(world.Annotated("curl-me-that", "k="+good), "did you mean x-kv8s.io/curl-me-that?"),
		"label": bare(world.Labelled("x-kv8s.io/curl-me-that", "k"),
			"label x-kv8s.io/curl-me-that has no effect; did you mean the annotation curl-me-that?"),
		"typo-option": option("curl-refesh", "1h",
			"annotation x-kv8s.io/curl-refesh is unknown and has no effect; did you mean curl-refresh?"),
		"empty":       pairs("", "does not match expected format key=url"),
		"no-pair":     pairs("not correct", "does not match expected format key=url"),
		"comma":       pairs("a="+good+", b="+good, "the url ends with a comma"),
		"comma-tight": pairs("a="+good+",b="+good, "the url contains a comma and what looks like another pair"),
		"ftp":         pairs("k=ftp://example.com/x", "the scheme must be http or https"),
		"no-host":     pairs("k=http://", "the host is missing"),
		"password":    pairs("k=http://me:secret@example.com/", "the url contains a user name or a password"),
		"umlaut":      pairs("k=http://example.com/ü", "the url contains characters other than printable ASCII"),
		"bad-key":     pairs("a/b="+good, "the key has characters other than letters, digits, -, _ and ."),
		"twice":       pairs("k="+good+" k="+good, "the key appears twice, so none of its urls is fetched"),
		"short": {
			asking("k="+good, annotated("curl-refresh", "100ms")), "", ok, "AnnotationAdjusted",
			"curl-refresh is 100ms, below the minimum of 10s; 10s is used",
		},
		"minutes":       option("curl-refresh", "5 minutes", "is not a duration such as 10m"),
		"other-refresh": option("curl-refresh", "other=10m", "which is not requested"),
		"suspend-yes":   option("curl-suspend", "yes", "is not true or false"),
		"digest":        option("curl-sha256", "abab", "does not match expected format key=<64 hexadecimal digits>"),
		"other-digest":  option("curl-sha256", "other="+strings.Repeat("ab", 32), "which is not requested"),
		"bad-expect":    option("curl-expect", "k=size(", "annotation curl-expect, line 1 (key k): it ends too early"),
		"bad-select": option("curl-select", "k=nonsense", "annotation curl-select, line 1 (key k): nonsense is unknown "+
			"(use body, json, heldSize and the standard functions of CEL)"),
	}
}

// wrongAddresses are mistakes that the fetcher finds.
func wrongAddresses(o *origin.Server, good string) map[string]mistake {
	fails := func(url, reason, sentence string, more ...world.Trait) mistake {
		return mistake{asking("k="+url, more...), "k", failing, reason, sentence}
	}
	page := func(path string) *origin.Page { return o.Page(path).Says("good") }
	secure := origin.StartTLS(nil)
	DeferCleanup(secure.Close)
	const metadata = "http://169.254.169.254/"
	return map[string]mistake{
		"missing": fails(o.Page("/missing").URL(), "BadStatus", "localhost responded with 404"),
		"forbidden": fails(o.Page("/forbidden").Fails(http.StatusForbidden).URL(), "BadStatus",
			"localhost responded with 403"),
		"down": fails(o.Page("/down").Fails(http.StatusInternalServerError).URL(), "BadStatus",
			"localhost responded with 500"),
		"nothing": fails(o.Page("/nothing").Fails(http.StatusNoContent).URL(), "BadStatus",
			"localhost responded with 204 (no content), but only 200 is accepted; use a URL that returns a body"),
		"unknown": fails("https://nosuch.example.invalid/", "", "nosuch.example.invalid"),
		"metadata": fails(metadata, "AddressDenied",
			"fetching from 169.254.169.254 is not allowed: its address is not public"),
		"gone": fails(o.Page("/gone").Fails(http.StatusGone).URL(), "BadStatus", "localhost responded with 410"),
		"to-metadata": fails(o.Page("/to-metadata").Fails(http.StatusFound).With("Location", metadata).URL(),
			"AddressDenied", "redirect 1 of localhost leads to a URL that is not allowed: its address is not public; "+
				"use a URL without that redirect, or ask the operator"),
		"loop": fails(o.Page("/loop").Fails(http.StatusFound).With("Location", "/loop").URL(),
			"TooManyRedirects", "localhost redirected more than 5 times"),
		"other-name": fails(secure.Page("/").URL(), "TLSFailed",
			"the TLS certificate of localhost cannot be trusted: it was issued for another host name"),
		"plain": fails(page("/plain").Bare(), "TLSFailed", "localhost responded by plain HTTP to an https:// URL"),
		"closed": fails("http://"+closedPort(), "ConnectFailed",
			"could not connect to localhost: connection refused"),
		"slow": fails(page("/slow").Takes(time.Minute).URL(), "Timeout",
			"localhost did not respond within 2s, a limit of the operator; use a faster URL, or ask the operator to raise it"),
		"cut-off": fails(page("/cut-off").With("Content-Length", "1000").URL(), "BadResponse",
			"localhost closed the connection before the response was complete"),
		"garbage": fails("http://"+noHTTP(), "BadResponse", "not valid HTTP"),
		"gzip": fails(page("/gzip").With("Content-Encoding", "gzip").URL(), "BadResponse",
			"localhost compressed the body (Content-Encoding) although that was not requested; have it served uncompressed"),
		"large": fails(o.Page("/large").Serves(make([]byte, 1_000_001)).URL(), "BodyTooLarge",
			"the body from localhost is larger than the limit of 1,000,000 bytes; use a smaller file, or ask the operator"),
		"other-sum": fails(good, "DigestMismatch",
			"which is not the one in curl-sha256", annotated("curl-sha256", "k="+strings.Repeat("ab", 32))),
	}
}

// wrongObjects are mistakes that the writer finds.
func wrongObjects(o *origin.Server, good string) map[string]mistake {
	big := strings.Repeat("x", 900_000)
	return map[string]mistake{
		"exists": {
			asking("k="+good, world.Holding("k", "mine")), "k", refused, "KeyExists",
			"key k already exists",
		},
		"immutable": {asking("k="+good, world.Immutable()), "k", refused, "Immutable", "the ConfigMap is immutable"},
		"full": {
			asking("k="+o.Page("/half").Says(big[:300_000]).URL(), world.Holding("rest", big)), "k", refused, "BodyTooLarge",
			"the ConfigMap would exceed 1 MiB with the body for key k (300,000 bytes)",
		},
		"policy": {
			asking("denied=" + good), "denied", refused, "WriteFailed",
			"the API server refused to write the body from localhost, perhaps by an admission policy or " +
				"webhook; ask the operator, the log of the writer says which",
		},
	}
}

var _ = Describe("A mistake", func() {
	It("has the same state and sentence in Event, status, failing, failures, check and console", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{Flags: map[string][]string{
			world.Watcher: {"--min-refresh=10s"}, world.Fetcher: {"--min-refresh=10s", "--header-timeout=2s"},
		}})
		w.Deny(ctx, "denied")
		good := w.Origin.Page("/good").Says("good").URL()
		mistakes := wrongAnnotations(good)
		maps.Copy(mistakes, wrongAddresses(w.Origin, good))
		maps.Copy(mistakes, wrongObjects(w.Origin, good))
		objects := map[string]*world.ConfigMap{}
		for name, m := range mistakes {
			objects[name] = w.Create(ctx, name, m.traits...)
		}
		w.Create(ctx, "ignored", asking("k="+good, world.Labelled("reconciler", "ignore"))...)
		w.Create(ctx, "paused", asking("k="+good, annotated("curl-suspend", "true"))...)
		s := newScreens(ctx, w)
		for name, m := range mistakes {
			Eventually(ctx, func(g Gomega) { s.agree(ctx, g, objects[name], m) }).Should(Succeed(), name)
		}
		whys := map[string]string{"ignored": "it has the label reconciler=ignore", "paused": "it is suspended"}
		for name, why := range whys {
			Expect(s.curlctl(ctx, "wants", "-n", w.Namespace, "--no-headers")).To(MatchRegexp(name + " +k +ignored"))
			Expect(s.curlctl(ctx, "status", w.Namespace+"/"+name)).To(ContainSubstring(why))
			Expect(s.page(ctx, Default, name)).To(ContainSubstring("Ignored " + why))
		}
	})

	It("in a Watcher has the same sentence in Event, condition, status and console", func(ctx SpecContext) {
		api := env.Cluster.ServeWatchers(ctx).Resource(watchv1.Resource())
		w := env.World(ctx, world.Options{})
		w.Launch(ctx, world.Keeper).EventuallyReady(ctx)
		w.Create(ctx, "theirs", world.Holding("a", "mine"))
		s := newScreens(ctx, w)
		for name, m := range map[string]struct{ spec, condition, reason, sentence string }{
			"gone": {
				`{"sources":[{"key":"k","url":"` + w.Origin.Page("/gone").URL() + `"}]}`, "Fresh", "BadStatus",
				"key k: localhost responded with 404",
			},
			"closed": {
				`{"sources":[{"key":"k","url":"http://` + closedPort() + `/"}]}`, "Fresh", "ConnectFailed",
				"key k: could not connect to localhost: connection refused",
			},
			"exists": {`{"configData":{"a":"b"},"target":{"name":"theirs"}}`, "Stalled", "TargetExists", "ConfigMap theirs"},
		} {
			o := &unstructured.Unstructured{}
			Expect(o.UnmarshalJSON([]byte(`{"apiVersion":"` + watchv1.GroupVersion().String() +
				`","kind":"Watcher","metadata":{"name":"` + name + `"},"spec":` + m.spec + `}`))).To(Succeed())
			suitetest.Must(api.Namespace(w.Namespace).Create(ctx, o, metav1.CreateOptions{}))
			Eventually(ctx, func(g Gomega) {
				found, err := api.Namespace(w.Namespace).Get(ctx, name, metav1.GetOptions{})
				g.Expect(err).NotTo(HaveOccurred())
				var typed watchv1.Watcher
				g.Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(found.Object, &typed)).To(Succeed())
				c := meta.FindStatusCondition(typed.Status.Conditions, m.condition)
				g.Expect(c).NotTo(BeNil())
				g.Expect(c.Reason).To(Equal(m.reason))
				g.Expect(c.Message).To(ContainSubstring(m.sentence))
				g.Expect(s.curlctl(ctx, "status", w.Namespace+"/"+name)).To(ContainSubstring(m.sentence), "status")
				g.Expect(s.page(ctx, g, name)).To(ContainSubstring(m.reason+" "+c.Message), "console")
				g.Expect(w.Events(ctx)).To(ContainElement(And(HaveField("Regarding.Kind", watchv1.Kind),
					HaveField("Regarding.Name", name), HaveField("Reason", m.reason),
					HaveField("Note", ContainSubstring(m.sentence)))), "Event")
			}).Should(Succeed(), name)
		}
	})
})

// screens show the ConfigMaps of a world to people.
type screens struct {
	world   *world.World
	console string
}

func newScreens(ctx context.Context, w *world.World) *screens {
	GinkgoHelper()
	p := suitetest.Must(process.Start(process.Program{Name: "curlctl", Path: w.Program("curlctl"), Args: []string{
		"console", "--auth=none", "--kubeconfig=" + w.Cluster.Kubeconfig, "--nats-url=" + w.NATS.URL(),
	}}))
	DeferCleanup(p.Kill)
	s := &screens{world: w}
	Eventually(ctx, func() string {
		s.console = regexp.MustCompile(`http://[^/\s]+`).FindString(p.Log.String())
		return s.console
	}).ShouldNot(BeEmpty())
	return s
}

// found is one key or object in an output of curlctl.
type found struct{ Key, State, Reason, Message, Verdict, Detail string }

// agree expects that all screens show the mistake in the same words.
func (s *screens) agree(ctx context.Context, g Gomega, cm *world.ConfigMap, m mistake) {
	n, at := s.world.Namespace, s.world.Namespace+"/"+cm.Name
	list := s.items(ctx, g, "failing", "-n", n, "--name", cm.Name)
	if m.reason == "" && len(list) == 1 { // without a DNS server, it differs
		m.reason = list[0].Reason
	}
	notes := ""
	for _, event := range cm.Events(ctx, m.reason) {
		notes += event.Note + "\n"
	}
	g.Expect(notes).To(ContainSubstring(m.sentence), "Event")
	sentence, shown := m.sentence, "Note "
	if m.state != ok {
		g.Expect(list).To(HaveLen(1), "failing")
		sentence, shown = list[0].Message, "Problem "
		g.Expect(list[0]).To(Equal(found{Key: m.key, State: m.state, Reason: m.reason, Message: sentence}), "failing")
		g.Expect(notes).To(ContainSubstring(sentence), "Event")
	} else {
		g.Expect(list).To(BeEmpty(), "failing")
	}
	g.Expect(sentence).To(ContainSubstring(m.sentence), "failing")
	if m.key != "" {
		entry := cm.Status(ctx, m.key)
		g.Expect(entry.Error).To(Equal(m.reason), "annotation")
		g.Expect(entry.Why().Message).To(Equal(sentence), "annotation")
		if entry.GaveUp && m.state == failing {
			g.Expect(s.items(ctx, g, "failures", "-n", n, "--name", cm.Name)).
				To(ContainElement(HaveField("Reason", m.reason)), "failures")
		}
		shown = m.key + " " + m.state + " " + m.reason + " "
	} else if _, own := cm.Get(ctx).Annotations[annotation.DefaultKey]; own && m.state != ok {
		g.Expect(cm.Problem(ctx)).To(HaveField("Message", sentence), "annotation")
	}
	g.Expect(s.items(ctx, g, "check", at)).
		To(ContainElement(And(HaveField("Verdict", m.reason), HaveField("Detail", sentence))), "check")
	var view struct {
		Problem string
		Notes   []string
		Keys    []found
	}
	g.Expect(json.Unmarshal([]byte(s.curlctl(ctx, "status", at, "-o", "json")), &view)).To(Succeed())
	switch {
	case m.key != "":
		g.Expect(view.Keys).To(ConsistOf(found{Key: m.key, State: m.state, Reason: m.reason, Message: sentence}), "status")
	case m.state == ok:
		g.Expect(view.Notes).To(ConsistOf(sentence), "status")
	default:
		g.Expect(view.Problem).To(Equal(sentence), "status")
	}
	g.Expect(s.page(ctx, g, cm.Name)).To(MatchRegexp(shown+"([0-9]{3} )?"+regexp.QuoteMeta(sentence)), "console")
}

// items returns the list that curlctl prints.
func (s *screens) items(ctx context.Context, g Gomega, args ...string) []found {
	var list struct{ Items []found }
	g.Expect(json.Unmarshal([]byte(s.curlctl(ctx, append(args, "-o", "json")...)), &list)).To(Succeed(), args[0])
	return list.Items
}

// curlctl returns the output of curlctl, which may find problems.
func (s *screens) curlctl(ctx context.Context, args ...string) string {
	out, _ := exec.CommandContext(ctx, s.world.Program("curlctl"), append(args,
		"--kubeconfig="+s.world.Cluster.Kubeconfig, "--nats-url="+s.world.NATS.URL())...).Output() // exit code 7 of check
	return string(out)
}

// page returns the object page of the console without its markup.
func (s *screens) page(ctx context.Context, g Gomega, name string) string {
	url := s.console + "/objects/" + s.world.Namespace + "/" + name
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	g.Expect(err).NotTo(HaveOccurred())
	response, err := http.DefaultClient.Do(request)
	g.Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	g.Expect(err).NotTo(HaveOccurred())
	_, main, _ := strings.Cut(string(body), "<main")
	text := html.UnescapeString(regexp.MustCompile(`<[^>]*>`).ReplaceAllString(main, " "))
	return strings.Join(strings.Fields(text), " ")
}

// closedPort returns an address where nothing listens.
func closedPort() string {
	GinkgoHelper()
	l := suitetest.Must(net.Listen("tcp", "127.0.0.1:0"))
	defer l.Close()
	return "localhost:" + strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}

// noHTTP returns the address of a server that does not speak HTTP.
func noHTTP() string {
	GinkgoHelper()
	l := suitetest.Must(net.Listen("tcp", "127.0.0.1:0"))
	DeferCleanup(l.Close)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte("220 mail.example.com ESMTP\r\n\r\n"))
			_ = conn.Close()
		}
	}()
	return "localhost:" + strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}
