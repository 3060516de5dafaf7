package fault_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"google.golang.org/protobuf/proto"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/suitetest"
)

var _ = Describe("An invalid message", func() {
	It("on any subject becomes a dead letter, and the rest continues", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		load := w.Begin(ctx, 20)
		load.EventuallyEnds(ctx, 30*time.Second)

		theirs := pipeline.Key{Namespace: w.Namespace, Name: "no-such-map", Key: "k"}
		count := 0
		for _, subject := range []string{
			theirs.Want(), theirs.Due(), theirs.Content(), theirs.Failure(), theirs.Reconcile(),
			"curl.want.one-token", "curl.due.a.b.c.d", "curl.result.content.%zz.%2.k",
			"curl.result.content." + w.Namespace + ".load-000.$patch", "curl.result.reconcile.kube-system.x.k",
		} {
			for _, payload := range [][]byte{
				bytes.Repeat([]byte{0xff}, 100),
				{0x08},
				[]byte(strings.Repeat("x", 60_000)),
				[]byte("{}"),
			} {
				_, err := w.JetStream.Publish(ctx, subject, payload)
				Expect(err).NotTo(HaveOccurred(), subject)
				count++
			}
		}
		page := w.Origin.Page("/after").Says("none of it hurts")
		w.Create(ctx, "after", world.Asking("mydata="+page.URL())).EventuallyHasData(ctx, "mydata", "none of it hurts")
		w.EventuallyQuiet(ctx)
		// The stream of requests keeps only the last message of each subject.
		Expect(w.Stored(ctx, pipeline.Failures, "curl.failure.Malformed.>")).To(BeNumerically(">=", 10))
		Expect(w.Fetcher().Log.Count() + w.Writer().Log.Count()).To(BeNumerically("<", 20+5*count+100))
		load.EventuallyEnds(ctx, time.Second)
	})

	It("from a compromised fetcher changes only requested keys", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		_, cm := w.Fill(ctx, "target", "asked for", world.Holding("other", "theirs"))
		w.EventuallyQuiet(ctx)
		object := cm.Get(ctx)
		writes := cm.Writes(ctx)
		body := []byte("replace")
		sum := sha256.Sum256(body)
		for n, key := range []string{"other", "fresh", "$patch", "mydata"} {
			k := pipeline.Key{Namespace: w.Namespace, Name: "target", Key: key}
			result := &v1.Result{
				Want: &v1.Want{
					Namespace: k.Namespace, Name: k.Name, Key: k.Key, Uid: string(object.UID),
					ResourceVersion: object.ResourceVersion, Url: "https://evil.example.com/", Epoch: 1 << 60,
				},
				Sequence: uint64(1_000_000 + n),
				Outcome:  &v1.Result_Content{Content: &v1.Content{Body: body, Sha256: hex.EncodeToString(sum[:])}},
			}
			data := suitetest.Must(proto.Marshal(result))
			suitetest.Must(w.JetStream.Publish(ctx, k.Content(), data))
		}
		w.EventuallyQuiet(ctx)
		Expect(cm.Get(ctx).Data).To(Equal(map[string]string{"mydata": "asked for", "other": "theirs"}))
		Expect(cm.Writes(ctx)).To(Equal(writes))
	})
})
