package permissions_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/suitetest"
)

// grant is a pattern that accounts.conf grants to an identity.
type grant struct{ identity, pattern string }

// collides reports whether another identity has an overlapping pattern without a reason.
func (g grant) collides(with grant) bool {
	if g.identity == with.identity || g.reasoned() || with.reasoned() {
		return false
	}
	return server.SubjectsCollide(g.pattern, with.pattern)
}

// granted returns the patterns that identities may publish and subscribe to. An account needs an
// import for each subject that it publishes, so imports are included.
func (c configured) granted(b *broker) (publish, subscribe []grant) {
	GinkgoHelper()
	for name, a := range c.Accounts {
		if name == c.SystemAccount {
			continue
		}
		for _, u := range a.Users {
			identity := b.identity(u.NKey)
			if identity == specs {
				continue
			}
			for _, subject := range u.Permissions.Publish.Allow {
				publish = append(publish, grant{identity, subject})
			}
			for _, subject := range u.Permissions.Subscribe.Allow {
				subscribe = append(subscribe, grant{identity, subject})
			}
			for _, i := range a.Imports {
				if i.Service.Account != "" {
					publish = append(publish, grant{identity, string(i.Service.Subject)})
				}
			}
		}
	}
	return publish, subscribe
}

var operators = []string{"viewer", "replayer", "admin"}

// overlaps has the patterns that operators share with other identities on purpose, with reasons.
var overlaps = map[string]string{
	"$JS.API.DIRECT.GET.CURL_REQUESTS.>": "they read all requests",
	"curl.want.>":                        "they see stored wants, which their accounts import under live.",
	"curl.timer.>":                       "they see stored timers",
	"curl.due.>":                         "they see stored dues",
	"curl.result.>":                      "they see stored results",
	"curl.failure.>":                     "they see stored failures",
	"curl.record.>":                      "an import; each may publish only its own records",
}

func (g grant) reasoned() bool {
	return slices.Contains(operators, g.identity) && overlaps[g.pattern] != ""
}

// listeners returns the subjects that the server subscribes to in the account of the streams.
func (b *broker) listeners(ctx SpecContext) (all []string) {
	GinkgoHelper()
	var found struct {
		Subscriptions []struct{ Subject string } `json:"subscriptions_list"`
	}
	text := monitored(ctx, b.servers[0].MonitorURL(), "/subsz?subs=1&acc=CURL&limit=1000")
	Expect(json.Unmarshal([]byte(text), &found)).To(Succeed())
	for _, s := range found.Subscriptions {
		// The whole API has one subscription. Each grant of it names one request.
		if s.Subject != "$JS.API.>" {
			all = append(all, s.Subject)
		}
	}
	Expect(all).To(ContainElements("$JS.ACK.CURL_RESULTS.writer.*.*.*.*.*", "curl.want.>"))
	return all
}

// thefts has subjects that match an acknowledgement of one consumer and almost match one of
// another.
var thefts = []struct {
	thief, owner, stream, consumer string
	subjects                       []string
}{
	{"fetcher", "writer", pipeline.Results, pipeline.WriterConsumer, []string{
		"$JS.ACK.CURL_RESULTS.writer.CURL_REQUESTS.fetcher.1.1.1",
		"$JS.ACK.CURL_REQUESTS.fetcher.CURL_RESULTS.writer.1.1.1.1.1",
	}},
	{"writer", "fetcher", pipeline.Requests, pipeline.FetcherConsumer, []string{
		"$JS.ACK.CURL_REQUESTS.fetcher.CURL_RESULTS.writer.1.1.1",
		"$JS.ACK.CURL_RESULTS.writer.CURL_REQUESTS.fetcher.1.1.1.1.1",
	}},
}

var _ = Describe("Patterns in accounts.conf", func() {
	It("are not shared by identities without a reason", func(ctx SpecContext) {
		b := start(ctx, plain)
		publish, subscribe := parsed(b.accounts()).granted(b)
		Expect(len(publish)).To(BeNumerically(">", 100))
		var found []string
		for _, p := range publish {
			for _, q := range publish {
				// Equal patterns are rows of the tables in which both identities have a yes.
				if p.pattern != q.pattern && p.collides(q) {
					found = append(found, fmt.Sprintf("%s and %s publish", p, q))
				}
			}
			for _, q := range subscribe {
				if p.collides(q) {
					found = append(found, fmt.Sprintf("%s publishes, %s subscribes", p, q))
				}
			}
		}
		Expect(found).To(BeEmpty())
	})

	It("match one subscription of the server each", func(ctx SpecContext) {
		b := start(ctx, plain)
		suitetest.Must(pipeline.Ensure(ctx, b.jetStream(), pipeline.Topology{}))
		publish, _ := parsed(b.accounts()).granted(b)
		listeners := b.listeners(ctx)
		for _, p := range publish {
			var reached []string
			for _, subject := range listeners {
				if server.SubjectsCollide(p.pattern, subject) {
					reached = append(reached, subject)
				}
			}
			if strings.ContainsAny(p.pattern, "*>") {
				Expect(reached).To(HaveLen(1), "%s may publish %s", p.identity, p.pattern)
			}
			Expect(len(reached)).To(BeNumerically("<=", 1), "%s may publish %s", p.identity, p.pattern)
		}
	})

	DescribeTable("let no identity acknowledge messages of another identity's consumer", func(
		ctx SpecContext, f form,
	) {
		b := start(ctx, f)
		js := b.jetStream()
		suitetest.Must(pipeline.Ensure(ctx, js, pipeline.Topology{}))
		const n = 50
		for i := range n {
			for _, subject := range []string{"curl.result.content", "curl.want"} {
				suitetest.Must(js.Publish(ctx, fmt.Sprintf("%s.team-a.cm.k%d", subject, i), []byte("SECRET")))
			}
		}
		for _, t := range thefts {
			nc := b.connect(t.thief)
			stolen := suitetest.Must(nc.SubscribeSync(nc.NewInbox()))
			for _, subject := range t.subjects {
				Expect(nc.PublishRequest(subject, stolen.Subject, []byte(`+NXT {"batch":1000}`))).To(Succeed())
			}
			Expect(nc.Flush()).To(Succeed())
			owner := suitetest.Must(jetstream.New(b.connect(t.owner)))
			consumer := suitetest.Must(owner.Consumer(ctx, t.stream, t.consumer))
			batch := suitetest.Must(consumer.Fetch(n))
			taken := 0
			for range batch.Messages() {
				taken++
			}
			Expect(batch.Error()).NotTo(HaveOccurred())
			Expect(taken).To(Equal(n), "messages for the %s", t.owner)
			Expect(stolen.Pending()).To(BeZero())
		}
	}, Entry("with the configuration", plain), Entry("with JWT", byJWT))
})
