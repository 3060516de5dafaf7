package reconcile_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/process/metric/metrictest"
	"github.com/kv8s/curl-me-that/watcher/internal/annotated"
	"github.com/kv8s/curl-me-that/watcher/internal/informer"
)

func TestTenThousandObjectsMakeNoSeriesMore(t *testing.T) {
	const objects, hosts = 10_000, 500
	b, g := newBench(t), gomega.NewWithT(t)
	before, err := metrictest.Read(b.registry)
	g.Expect(err).NotTo(gomega.HaveOccurred())
	for i := range objects {
		name := types.NamespacedName{Namespace: fmt.Sprint("ns-", i%100), Name: fmt.Sprint("cm-", i)}
		b.object = &annotated.Object{
			Meta:    informer.Meta{NamespacedName: name, UID: types.UID(fmt.Sprint("uid-", i)), Version: 1},
			Written: b.clock.Now(), SeenAt: b.clock.Now(),
			Request: annotation.Request{Present: true, Pairs: []annotation.Pair{
				{Key: "k", URL: fmt.Sprintf("https://host-%d.example.com/%d", i%hosts, i)},
			}},
			Owners: map[string]annotation.Ownership{"k": {State: annotation.None, Fingerprint: "none"}},
		}
		if i%10 == 0 {
			b.object.Invalid = errors.New("not correct")
		}
		_, err := b.Reconcile(t.Context(), name)
		g.Expect(err).NotTo(gomega.HaveOccurred())
	}
	g.Expect(metrictest.Value(b.registry,
		"curlmethat_watcher_wants_published_total")).To(gomega.BeEquivalentTo(objects - objects/10))
	g.Expect(metrictest.Value(b.registry,
		"curlmethat_watcher_events_emitted_total")).To(gomega.BeEquivalentTo(objects / 10))
	after, err := metrictest.Read(b.registry)
	g.Expect(err).NotTo(gomega.HaveOccurred())
	g.Expect(slices.Sorted(maps.Keys(after))).To(gomega.Equal(slices.Sorted(maps.Keys(before))))
}
