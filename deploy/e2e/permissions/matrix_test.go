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
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// cell tells whether an identity may use a subject.
type cell struct {
	operation, what, subject, identity string
	may                                bool
}

// columns are the identities in permissions.csv.
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
		defer sub.Unsubscribe() //nolint:errcheck // a denied one is gone
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

	It("let the watcher read all wants and timers, however many there are", func(ctx SpecContext) {
		b := start(ctx, plain)
		suitetest.Must(pipeline.Ensure(ctx, b.jetStream(), pipeline.Topology{}))
		load(ctx, b)
		Expect(b.violations()).To(BeEmpty())
	})
})

// load publishes so many wants and timers that reading them takes many requests, and reads them like the
// watcher.
func load(ctx context.Context, b *broker) {
	GinkgoHelper()
	watcher, fetcher := b.client("watcher"), b.client("fetcher")
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

// granted returns the patterns that identities may publish to. They include imports, because an account needs
// one for each subject that it publishes to.
func (c configured) granted(b *broker) (publish []grant) {
	GinkgoHelper()
	for name, a := range c.Accounts {
		for _, u := range a.Users {
			identity := b.identity(u.NKey)
			if name == c.SystemAccount || identity == specs {
				continue
			}
			for _, subject := range u.Permissions.Publish.Allow {
				publish = append(publish, grant{identity, subject})
			}
			for _, i := range a.Imports {
				if i.Service.Account != "" {
					publish = append(publish, grant{identity, string(i.Service.Subject)})
				}
			}
		}
	}
	return publish
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
		// The API has a single subscription, and each grant names one of its requests.
		if s.Subject != "$JS.API.>" {
			all = append(all, s.Subject)
		}
	}
	Expect(all).To(ContainElements("$JS.ACK.CURL_RESULTS.writer.*.*.*.*.*", "curl.want.>"))
	return all
}

var _ = Describe("Patterns in accounts.conf", func() {
	It("match one subscription of the server each", func(ctx SpecContext) {
		b := start(ctx, plain)
		suitetest.Must(pipeline.Ensure(ctx, b.jetStream(), pipeline.Topology{}))
		publish := parsed(b.accounts()).granted(b)
		Expect(len(publish)).To(BeNumerically(">", 100))
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
})
