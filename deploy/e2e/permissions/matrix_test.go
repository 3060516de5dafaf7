package permissions_test

import (
	"encoding/csv"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
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

var _ = It("The permissions match permissions.csv cell by cell", func(ctx SpecContext) {
	b := start(ctx, overTLS)
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
})
