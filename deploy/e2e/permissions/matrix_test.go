package permissions_test

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/suitetest"
)

// cell says whether an identity may use a subject.
type cell struct {
	operation, what, subject, identity string
	may                                bool
}

// columns are the identities of permissions.csv.
var columns = []string{"watcher", "fetcher", "writer", "setup", "viewer", "replayer", "admin"}

// cells reads permissions.csv.
func cells() []cell {
	GinkgoHelper()
	file := suitetest.Must(os.Open(filepath.Join(shipped, "permissions.csv")))
	defer file.Close()
	rows := suitetest.Must(csv.NewReader(file).ReadAll())
	var all []cell
	for _, row := range rows[1:] {
		allowed := strings.Split(row[3], ", ")
		Expect(row[0]).To(BeElementOf("publish", "subscribe"))
		Expect(append(slices.Clone(columns), "nobody")).To(ContainElements(allowed), row[1])
		for _, identity := range columns {
			all = append(all, cell{
				operation: row[0], what: row[1], subject: row[2], identity: identity, may: slices.Contains(allowed, identity),
			})
		}
	}
	Expect(len(all)).To(BeNumerically(">", 400), "cells of the table")
	return all
}

// tried uses the subject of a cell and reports whether the server allowed it.
func tried(nc *nats.Conn, c cell) bool {
	GinkgoHelper()
	if c.operation == "subscribe" {
		sub := suitetest.Must(nc.SubscribeSync(c.subject))
		defer sub.Unsubscribe() //nolint:errcheck // refused ones are gone
	} else {
		Expect(nc.Publish(c.subject, nil)).To(Succeed())
	}
	Expect(nc.Flush()).To(Succeed())
	// A denial arrives before the response to the flush.
	err := nc.LastError()
	return err == nil || !strings.Contains(err.Error(), `"`+c.subject+`"`)
}

var _ = Describe("The permissions", func() {
	DescribeTable("match permissions.csv cell by cell", func(ctx SpecContext, f form) {
		b := start(ctx, f)
		suitetest.Must(pipeline.Ensure(ctx, b.jetStream(), pipeline.Topology{}))
		connections := map[string]*nats.Conn{}
		for _, c := range cells() {
			nc := connections[c.identity]
			if nc == nil {
				nc = b.connect(c.identity)
				connections[c.identity] = nc
			}
			Expect(tried(nc, c)).To(Equal(c.may), "may %s %s %s (%s)", c.identity, c.operation, c.subject, c.what)
		}
	}, Entry("with the configuration", overTLS), Entry("with JWT", byJWT))

	DescribeTable("let no user sign audit records for another user", func(ctx SpecContext, f form) {
		b := start(ctx, f)
		for _, identity := range []string{"viewer", "replayer", "admin"} {
			nc := b.connect(identity)
			for _, signed := range []string{"viewer", "replayer", "admin"} {
				c := cell{operation: "publish", subject: "curl.record.replay." + b.signs(signed) + ".1"}
				Expect(tried(nc, c)).To(Equal(identity == signed && identity != "viewer"), "%s for %s", identity, signed)
			}
		}
	}, Entry("with the configuration", plain), Entry("with JWT", byJWT))

	It("separate the accounts", func(ctx SpecContext) {
		b := start(ctx, plain)
		suitetest.Must(pipeline.Ensure(ctx, b.jetStream(), pipeline.Topology{}))
		system := b.connect("sys")
		Expect(tried(system, cell{operation: "subscribe", subject: "$SYS.>"})).To(BeTrue())
		answer := suitetest.Must(system.Request("$JS.API.STREAM.INFO.CURL_REQUESTS", nil, nats.DefaultTimeout))
		Expect(string(answer.Data)).To(ContainSubstring("JetStream not enabled for account"))
		_, err := nats.Connect(b.URL())
		Expect(err).To(MatchError(nats.ErrAuthorization), "connecting without an identity is denied")
	})

	It("let the watcher read all wants and timers, however many there are", func(ctx SpecContext) {
		b := start(ctx, plain)
		suitetest.Must(pipeline.Ensure(ctx, b.jetStream(), pipeline.Topology{}))
		load(ctx, b)
		Expect(b.said.violations()).To(BeEmpty())
	})
})

// load publishes so many wants and timers that each service needs many requests to read them, and
// reads them as the watcher does.
func load(ctx context.Context, b *broker) {
	GinkgoHelper()
	client := func(identity string) *pipeline.Client {
		js := suitetest.Must(jetstream.New(b.connect(identity)))
		return pipeline.NewClient(js)
	}
	watcher, fetcher := client("watcher"), client("fetcher")
	const n = 1500
	var timers []string
	for i := range n {
		want := &v1.Want{
			Namespace: "default", Name: fmt.Sprintf("cm-%04d", i), Key: "key", Uid: "uid", ResourceVersion: "1",
			Url: "https://a.example.com/", Status: strings.Repeat("x", 4<<10), Cause: v1.Cause_CAUSE_NEW,
		}
		sequence := suitetest.Must(watcher.PublishWant(ctx, want, 0))
		Expect(fetcher.SetTimer(ctx, &v1.Due{Want: want, WantSequence: sequence}, time.Now().Add(time.Hour))).Error().
			NotTo(HaveOccurred())
		timers = append(timers, pipeline.KeyOf(want).Timer())
	}
	found := 0
	Expect(watcher.LoadWants(ctx, func(pipeline.Message) error { found++; return nil })).To(Succeed())
	Expect(found).To(Equal(n))
	Expect(watcher.CountTimers(ctx)).To(BeEquivalentTo(n))
	Expect(watcher.Latest(ctx, timers[:pipeline.MaxLatest])).To(HaveLen(pipeline.MaxLatest))
}

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
