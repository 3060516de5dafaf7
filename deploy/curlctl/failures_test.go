package curlctl_test

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/curlctl/broker"
	"github.com/kv8s/curl-me-that/deploy/testkit/natstest"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

var _ = Describe("failures", func() {
	var w *world
	BeforeEach(func(ctx SpecContext) {
		w = newWorld(ctx)
		a, _ := w.want(ctx, cm(1), "https://a.example.com/page?token=secret")
		w.fail(ctx, a, v1.FailureClass_FAILURE_CLASS_BAD_STATUS)
		w.failing(ctx, cm(2), "https://b.example.com/")
		w.failing(ctx, pipeline.Key{Namespace: "shop", Name: "kube-root-ca.crt", Key: "k"}, "https://a.example.com/c")
	})

	names := func(ctx SpecContext, args ...string) []string {
		GinkgoHelper()
		return strings.Fields(w.ok(ctx, append([]string{"failures", "-o", "name"}, args...)...))
	}

	It("lists failures, newest first", func(ctx SpecContext) {
		golden("failures", w.ok(ctx, "failures"))
		golden("failures-wide", w.ok(ctx, "failures", "-o", "wide"))
		Expect(w.ok(ctx, "failures", "--no-headers")).NotTo(ContainSubstring("REASON"))
		Expect(names(ctx, "--limit=2")).To(Equal([]string{"failure/3", "failure/2"}))
		Expect(w.run(ctx, "failures", "--limit=2").err).To(ContainSubstring("newest 2"))
	})

	It("lists a failure with an unreadable timer as pending", func(ctx SpecContext) {
		Expect(w.js.Publish(ctx, cm(1).TimerSubject(), []byte("garbage"))).Error().NotTo(HaveOccurred())
		Expect(w.ok(ctx, "failures", "--name=cm-001")).To(MatchRegexp(`my.data +pending`))
	})

	It("selects failures by reason, host, namespace, name, key and time", func(ctx SpecContext) {
		Expect(names(ctx, "--reason=Timeout")).To(Equal([]string{"failure/3", "failure/2"}))
		Expect(names(ctx, "--host=A.example.com")).To(Equal([]string{"failure/3", "failure/1"}))
		Expect(names(ctx, "--host=*")).To(BeEmpty(), "values are not patterns")
		Expect(names(ctx, "-n", "shop")).To(Equal([]string{"failure/3"}))
		Expect(names(ctx, "--name=cm-001")).To(Equal([]string{"failure/1"}))
		Expect(names(ctx, "--key=k")).To(Equal([]string{"failure/3"}))
		Expect(names(ctx, "--since=1h")).To(HaveLen(3))
		Expect(names(ctx, "--since=1m")).To(BeEmpty(), "they are 20 minutes old to the clock of the spec")
		Expect(names(ctx, "--until=1m")).To(HaveLen(3))
		Expect(w.run(ctx, "failures", "--reason=Timeout", "--host=c.example.com").err).
			To(Equal("No failures match. `curlctl failures --summary` shows reasons and hosts.\n"))
	})

	It("finds failures by the IP address in their URL", func(ctx SpecContext) {
		for i, url := range []string{"http://192.0.2.7:8080/a", "http://192.0.2.8/b", "http://[2001:db8::7]/c"} {
			w.failing(ctx, cm(10+i), url)
		}
		Expect(names(ctx, "--host=192.0.2.7")).To(Equal([]string{"failure/4"}))
		Expect(names(ctx, "--host=2001:DB8:0::7")).To(Equal([]string{"failure/6"}))
		Expect(names(ctx, "--host=(address)")).To(HaveLen(3))
		Expect(names(ctx, "--host=192.0.2.9")).To(BeEmpty())
		Expect(w.ok(ctx, "failures", "--summary", "--host=192.0.2.7")).To(MatchRegexp(`Timeout +\(address\) +1\n$`))
		Expect(w.ok(ctx, "replay", "--host=192.0.2.8")).To(Equal("Replayed 1 failure.\n"))
		Expect(w.ok(ctx, "failures", "purge", "--host=192.0.2.7", "--yes")).To(Equal("Removed 1 failure.\n"))
		Expect(names(ctx)).To(Equal([]string{"failure/6", "failure/5", "failure/3", "failure/2", "failure/1"}))
	})

	It("counts failures by reason and host", func(ctx SpecContext) {
		golden("failures-summary", w.ok(ctx, "failures", "--summary"))
		Expect(w.ok(ctx, "failures", "--summary", "--since=1h")).To(Equal(w.ok(ctx, "failures", "--summary")))
	})

	It("prints failures for programs, without secrets", func(ctx SpecContext) {
		var list struct{ Items []map[string]any }
		text := w.ok(ctx, "failures", "-o", "json")
		Expect(json.Unmarshal([]byte(text), &list)).To(Succeed())
		Expect(list.Items).To(HaveLen(3))
		Expect(list.Items[2]).To(HaveKeyWithValue("status", BeEquivalentTo(503)))
		Expect(text).NotTo(ContainSubstring("secret"))
		Expect(json.Unmarshal([]byte(w.ok(ctx, "failures", "-o", "json", "--host=none")), &list)).To(Succeed())
		Expect(list.Items).To(BeEmpty())
	})

	It("shows one failure with all details", func(ctx SpecContext) {
		golden("failures-show", w.ok(ctx, "failures", "show", "1"))
		w.forget(ctx, cm(1))
		Expect(w.ok(ctx, "failures", "show", "failure/1")).To(MatchRegexp(`(?m)^Now: +gone$`))
		w.want(ctx, cm(1), "https://elsewhere.example.com/")
		Expect(w.ok(ctx, "failures", "show", "1")).To(MatchRegexp(`(?m)^Now: +changed$`))
		Expect(w.ok(ctx, "failures", "show", "1", "-o", "json")).To(ContainSubstring(`"now": "changed"`))
	})

	It("reports mistakes in one sentence with an exit code", func(ctx SpecContext) {
		login := unreachable(`{"exec": {"command": "no-such-login", "apiVersion": "client.authentication.k8s.io/v1",
			"interactiveMode": "Never", "installHint": "Ask Bob."}}`)
		for _, c := range []struct {
			args []string
			code int
			says string
		}{
			{[]string{"failures", "show", "99"}, 5, "failure 99 not found"},
			{[]string{"failures", "show", "x"}, 2, `"x" is not the ID of a failure`},
			{[]string{"failures", "show"}, 2, "wrong number of arguments for `curlctl failures show ID [flags]`"},
			{[]string{"failures", "show", "1", "2"}, 2, "wrong number of arguments"},
			{[]string{"status", "a/b", "c/d"}, 2, "wrong number of arguments"},
			{[]string{"check", "a/b", "c/d"}, 2, "wrong number of arguments"},
			{[]string{"hand-over", "a/b", "c/d"}, 2, "wrong number of arguments"},
			{[]string{"refetch", "a/b", "c/d"}, 2, "wrong number of arguments"},
			{[]string{"history"}, 2, "wrong number of arguments for `curlctl history NAMESPACE/NAME [KEY] [flags]`"},
			{[]string{"diff", "a/b"}, 2, "wrong number of arguments"},
			{[]string{"rollback", "a/b"}, 2, "wrong number of arguments"},
			{[]string{"check", "a/b", "--fetch", "--offline"}, 2, "give either --fetch or --offline"},
			{[]string{"setup", "--dry-run", "--watch"}, 2, "give either --dry-run or --watch"},
			{[]string{"failures", "--reason=Foo"}, 2, "is not one of"},
			{[]string{"failures", "--since=x"}, 2, "neither a duration"},
			{[]string{"failures", "--since=1h", "--until=2h"}, 2, "is not after"},
			{[]string{"failures", "--limit=x"}, 2, "--limit: \"x\" is not a number; see `curlctl failures --help`"},
			{[]string{"failures", "--limit=-1"}, 2, "must not be negative"},
			{[]string{"failures", "--summary=x"}, 2, "--summary: \"x\" is neither true nor false"},
			{[]string{"failing", "--reason=Nonsense"}, 2, "Nonsense\" is not one of InvalidAnnotation, "},
			{[]string{"replay"}, 2, "replay needs IDs, filters such as --host, or --all"},
			{[]string{"replay", "1", "--all"}, 2, "replay takes either IDs or filters, not both"},
			{[]string{"replay", "x"}, 2, `"x" is not the ID of a failure`},
			{[]string{"replay", "--all", "--timeout=0s"}, 2, "--timeout must be positive"},
			{[]string{"replay", "7"}, 5, "failure 7 not found"},
			{[]string{"replay", "--all", "--host=x"}, 2, "not both"},
			{[]string{"replay", "--rate=x", "1"}, 2, "--rate: \"x\" is not a rate such as 20/s"},
			{[]string{"pause", "--for=x"}, 2, "--for: \"x\" is not a duration such as 10m"},
			{[]string{"pause", "--for=-1s"}, 2, "must not be negative"},
			{[]string{"setup", "--replicas=2"}, 2, "2 must be 0, 1, 3 or 5"},
			{[]string{"setup", "--max-results-bytes=1000"}, 2, "--max-results-bytes: 1000 is less than 16 MiB"},
			{[]string{"status", "one"}, 2, "NAMESPACE/NAME"},
			{[]string{"status", "--nats-creds=/nope"}, 1, "--nats-creds: stat /nope: no such file or directory"},
			{[]string{"status", "--nats-creds=command.go"}, 1, "curlctl: --nats-creds: nkeys: no nkey seed found"},
			{[]string{"status", "--nats-nkey=command.go"}, 1, "curlctl: --nats-nkey: nkeys: no nkey seed found"},
			{[]string{"status", "--nats-ca=command.go"}, 1, "curlctl: --nats-ca: nats: failed to parse root certificate"},
			{[]string{"status", "--nats-cert=command.go"}, 1, "--nats-cert and --nats-key must be set together"},
			{[]string{"status", "--context=none"}, 3, "unknown context \"none\""},
			{[]string{"wants", "--stale=x"}, 2, "--stale: \"x\" is neither true nor false"},
			{[]string{"refetch"}, 2, "refetch needs NAMESPACE/NAME, --host, --url or --all"},
			{[]string{"check"}, 2, "check needs either NAMESPACE/NAME or -f MANIFEST"},
			{[]string{"check", "-f", "/nope"}, 1, "open /nope: no such file or directory"},
			{[]string{"failures", "purge"}, 2, "purge needs filters such as --host, or --all"},
			{[]string{"console", "--listen=x"}, 2, "--listen: \"x\" is not an address such as 127.0.0.1:8090"},
			{[]string{"identities"}, 2, "identities needs either --out DIR or --secrets NAMESPACE"},
			{
				[]string{"status", "--kubeconfig=/nope", "a/b"},
				3,
				"curlctl: cannot reach Kubernetes: get ConfigMap a/b: read kubeconfig /nope: stat /nope: no such file",
			},
			{[]string{"status", "--kubeconfig=" + login, "a/b"}, 3, "executable no-such-login not found. Ask Bob.\n"},
			{[]string{"identities", "--secrets=a", "--kubeconfig=/nope"}, 3, "cannot reach Kubernetes: write Secrets: read"},
			{[]string{"doctor", "--kubernetes", "--kubeconfig=/nope"}, 3, "cannot reach Kubernetes: review rights: read"},
			{[]string{"failures", "-o", "xml"}, 2, "--output"},
			{[]string{"failures", "--nonsense"}, 2, "unknown flag"},
			{[]string{"failures", "nonsense"}, 2, "does not accept"},
			{[]string{"failures", "purg"}, 2, "did you mean purge?"},
			{[]string{"replai"}, 2, "did you mean replay?"},
		} {
			r := w.run(ctx, c.args...)
			Expect(r.code).To(Equal(c.code), "%v: %s", c.args, r.err)
			Expect(r.err).To(ContainSubstring(c.says))
			Expect(strings.Count(r.err, "\n")).To(Equal(1))
		}
		Expect(w.ok(ctx, "replay", "--host=nosuch")).
			To(Equal("No failures match. `curlctl failures --summary` shows reasons and hosts.\n"))
		Expect(w.js.DeleteStream(ctx, pipeline.DeadLetters)).To(Succeed())
		r := w.run(ctx, "failures")
		Expect(r.code).To(Equal(5))
		Expect(r.err).To(ContainSubstring("curlctl setup"))
		w.server.Stop()
		r = w.run(ctx, "failures")
		Expect(r.code).To(Equal(3))
		Expect(r.err).To(ContainSubstring("cannot connect to NATS at nats://127.0.0.1:"))
		r = w.run(ctx, "failing", "--kubeconfig=/nope")
		Expect(r.code).To(Equal(3))
		Expect(r.err).To(And(ContainSubstring("cannot connect to NATS at nats://127.0.0.1:"), ContainSubstring(
			", and cannot reach Kubernetes: list ConfigMaps: read kubeconfig /nope: stat /nope: no such file")))
	})

	It("purges failures", func(ctx SpecContext) {
		Expect(w.run(ctx, "failures", "purge").code).To(Equal(2))
		Expect(w.run(ctx, "failures", "purge", "--all").code).To(Equal(8))
		Expect(w.failed(ctx)).To(Equal(3))
		Expect(w.ok(ctx, "failures", "purge", "--host=b.example.com", "--yes")).To(Equal("Removed 1 failure.\n"))
		Expect(w.ok(ctx, "failures", "purge", "--since=1m", "--yes")).To(HavePrefix("No failures match."))
		Expect(w.ok(ctx, "failures", "purge", "--since=1h", "--yes")).To(Equal("Removed 2 failures.\n"))
		Expect(w.failed(ctx)).To(BeZero())
	})
})

var _ = Describe("Dead letters", func() {
	const many = 1500 // more than one window
	var (
		js     jetstream.JetStream
		client *broker.Client
	)
	BeforeEach(func(ctx SpecContext) {
		_, js, _ = natstest.Ensured(GinkgoTB(), pipeline.Topology{})
		client = broker.NewClient(js)
		for i := range many {
			letter := &v1.DeadLetter{Failure: &v1.Failure{Class: v1.FailureClass_FAILURE_CLASS_TIMEOUT, Host: "a.example.com"}}
			if i%300 == 7 {
				letter.Failure = &v1.Failure{Class: v1.FailureClass_FAILURE_CLASS_BAD_STATUS, Host: "b.example.com"}
			}
			Expect(client.PublishDeadLetter(ctx, natstest.Numbered(i), letter, strconv.Itoa(i))).To(Succeed())
		}
	})

	ids := func(ctx context.Context, f broker.DeadLetterFilter) (all []uint64) {
		GinkgoHelper()
		for failure, err := range client.DeadLetters(ctx, f) {
			Expect(err).NotTo(HaveOccurred())
			all = append(all, failure.ID)
		}
		return all
	}

	It("are read newest first, each once", func(ctx SpecContext) {
		Expect(client.DeleteDeadLetter(ctx, 1000)).To(Succeed())
		Expect(client.DeleteDeadLetter(ctx, 1000)).To(Succeed())
		all := ids(ctx, broker.DeadLetterFilter{})
		Expect(all).To(HaveLen(many - 1))
		for i := 1; i < len(all); i++ {
			Expect(all[i]).To(BeNumerically("<", all[i-1]))
		}
		Expect(client.DeadLetter(ctx, 1000)).Error().To(MatchError(pipeline.ErrNoMessage))
		one := suitetest.Must(client.DeadLetter(ctx, 8))
		Expect(one.Host).To(Equal("b.example.com"))
	})

	It("continue below the last ID", func(ctx SpecContext) {
		Expect(ids(ctx, broker.DeadLetterFilter{Host: "b.example.com", Below: 608})).To(Equal([]uint64{308, 8}))
		Expect(ids(ctx, broker.DeadLetterFilter{Below: 1})).To(BeEmpty())
		Expect(ids(ctx, broker.DeadLetterFilter{Below: 1 << 40})).To(HaveLen(many), "the ID is beyond the stream")
		Expect(client.PurgeDeadLetters(ctx, broker.DeadLetterFilter{Host: "b.example.com", Below: 608})).To(Equal(2))
		Expect(ids(ctx, broker.DeadLetterFilter{})).To(HaveLen(many - 2))
	})
})
