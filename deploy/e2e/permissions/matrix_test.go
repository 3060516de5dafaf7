package permissions_test

import (
	"encoding/csv"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

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

	It("keep the streams of an installation with a single account", func(ctx SpecContext) {
		b := start(ctx, plain)
		file := b.accounts()
		accounts := suitetest.Must(os.ReadFile(file))
		public := suitetest.Must(b.root.PublicKey())
		Expect(os.WriteFile(file, []byte(`accounts { CURL: { jetstream: enabled, users: [ { nkey: `+public+` } ] } }`),
			0o600)).To(Succeed())
		Expect(b.Restart()).To(Succeed())
		js := b.jetStream()
		epoch := suitetest.Must(pipeline.Ensure(ctx, js, pipeline.Topology{}))
		suitetest.Must(js.Publish(ctx, "curl.want.default.cm.key", []byte("a want")))

		Expect(os.WriteFile(file, accounts, 0o600)).To(Succeed())
		Expect(b.Restart()).To(Succeed())
		watcher := suitetest.Must(jetstream.New(b.connect("watcher")))
		again, _, err := pipeline.Epoch(ctx, watcher)
		Expect(err).NotTo(HaveOccurred())
		Expect(again).To(Equal(epoch))
		found := 0
		Expect(pipeline.NewClient(watcher).LoadWants(ctx, func(pipeline.Message) error { found++; return nil })).To(Succeed())
		Expect(found).To(Equal(1))
	})

	It("let the watcher read all wants and timers, however many there are", func(ctx SpecContext) {
		b := start(ctx, plain)
		suitetest.Must(pipeline.Ensure(ctx, b.jetStream(), pipeline.Topology{}))
		load(ctx, b)
		Expect(b.said.violations()).To(BeEmpty())
	})
})
