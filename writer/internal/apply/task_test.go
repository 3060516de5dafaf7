package apply

import (
	"testing"

	. "github.com/onsi/gomega"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/writer/internal/plan"
)

// A cached object is usable unless a want has a later version, or one that cannot be compared.
func TestCachedObjectsAreAtLeastAsNewAsTheirWants(t *testing.T) {
	for seen, want := range map[string]bool{"": true, "6": true, "7": true, "8": false, "10": false, "opaque": false} {
		for _, other := range []string{"", "7"} {
			batch := &task{}
			for _, version := range []string{other, seen} {
				batch.items = append(batch.items, plan.NewItem(&v1.Result{Want: &v1.Want{ResourceVersion: version}}))
			}
			NewWithT(t).Expect(batch.covers("7")).To(Equal(want), "for wants of %q and %q", other, seen)
		}
	}
}
