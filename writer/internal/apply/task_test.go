package apply

import (
	"testing"

	. "github.com/onsi/gomega"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/writer/internal/plan"
)

func TestAReadObjectCoversItsWant(t *testing.T) {
	for _, c := range []struct {
		read, seen string
		covers     bool
	}{
		{read: "10", seen: "", covers: true},
		{read: "10", seen: "9", covers: true},
		{read: "10", seen: "10", covers: true},
		{read: "10", seen: "11"},
		{read: "10", seen: "forged"},
		{read: "unknown", seen: "9"},
		{read: "unknown", seen: "unknown", covers: true},
	} {
		read := &task{items: []plan.Item{{Result: &v1.Result{Want: &v1.Want{ResourceVersion: c.seen}}}}}
		NewWithT(t).Expect(read.covers(c.read)).To(Equal(c.covers), "%q after %q", c.read, c.seen)
	}
}
