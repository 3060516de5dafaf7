package permissions_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/deploy/testkit/natstest"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/signature"
	"github.com/kv8s/curl-me-that/proto/status"
)

// client returns a client of the pipeline that connects as an identity.
func (b *broker) client(identity string) *pipeline.Client {
	GinkgoHelper()
	return pipeline.NewClient(suitetest.Must(jetstream.New(b.connect(identity))))
}

// opened creates the streams and starts the services, except for without. watcher has additional flags of the
// watcher.
func opened(ctx context.Context, watcher []string, without ...string) (*broker, *world.World) {
	GinkgoHelper()
	b := start(ctx, plain)
	b.watcher = watcher
	b.as(ctx, "setup", "setup")
	return b, b.world(ctx, without...)
}

// eventuallyWanted waits for the want for the key mydata of a ConfigMap. It returns the want and its sequence.
func eventuallyWanted(ctx context.Context, w *world.World, as *pipeline.Client, name string) (want *v1.Want,
	sequence uint64,
) {
	GinkgoHelper()
	Eventually(ctx, func() (err error) {
		want, sequence, err = as.LastWant(ctx, pipeline.Key{Namespace: w.Namespace, Name: name, Key: "mydata"})
		return err
	}).Should(Succeed())
	return want, sequence
}

// wantOf returns a want for the current object.
func wantOf(cm *corev1.ConfigMap, key string) *v1.Want {
	return &v1.Want{
		Namespace: cm.Namespace, Name: cm.Name, Key: key, Uid: string(cm.UID), ResourceVersion: cm.ResourceVersion,
	}
}

// forgeBody publishes a result with a body that no server sent.
func forgeBody(ctx context.Context, as *pipeline.Client, want *v1.Want, sequence uint64) {
	GinkgoHelper()
	body := []byte("forged")
	Expect(as.PublishResult(ctx, &v1.Result{
		Want: want, Sequence: sequence,
		Outcome: &v1.Result_Content{Content: &v1.Content{Body: body, Sha256: fmt.Sprintf("%x", sha256.Sum256(body))}},
	})).To(Succeed())
}

// eventuallyHandled waits until the writer has handled all results.
func eventuallyHandled(ctx context.Context, w *world.World) {
	GinkgoHelper()
	Eventually(ctx, func() int { return w.Stored(ctx, pipeline.Results, "curl.result.>") }).Should(BeZero())
}

var _ = Describe("A compromised fetcher", func() {
	// It can choose the sequence of each result, and also the epoch if the want is not signed. The status keeps
	// both, and later results with lower values count as older.
	It("cannot block later bodies by its choice of sequence and epoch", func(ctx SpecContext) {
		b, w := opened(ctx, nil, world.Fetcher)
		page := w.Origin.Page("/news").Says("asked for")
		fetcher := b.client("fetcher")
		for _, name := range []string{"signed", "tomorrow", "last"} { // until the real body arrives
			w.Breaks("ConfigMap " + name + " at version")
		}
		var attacked []*world.ConfigMap
		for name, forge := range map[string]func(*v1.Want){
			"signed":   func(*v1.Want) {},
			"tomorrow": func(w *v1.Want) { w.Epoch = time.Now().AddDate(0, 0, 1).UnixMilli() },
			"last":     func(w *v1.Want) { w.Epoch = status.MaxEpoch },
			"beyond":   func(w *v1.Want) { w.Epoch = math.MaxInt64 },
		} {
			cm := w.Create(ctx, name, world.Asking("mydata="+page.URL()))
			attacked = append(attacked, cm)
			want, _ := eventuallyWanted(ctx, w, fetcher, name)
			forge(want)
			forgeBody(ctx, fetcher, want, math.MaxUint64)
		}
		eventuallyHandled(ctx, w)
		w.Launch(ctx, world.Fetcher)
		for _, cm := range attacked {
			cm.Annotate(ctx, "x-kv8s.io/curl-now", "after the attack")
			cm.EventuallyHasData(ctx, "mydata", "asked for")
		}
	})

	// With a stolen signing key, it can write any key of an annotated object until that signing key is revoked.
	It("with a stolen signing key can write any key until the signing key is revoked", func(ctx SpecContext) {
		b, w := opened(ctx, nil, world.Fetcher)
		stolen := suitetest.Must(signature.LoadSigner(filepath.Join(b.identities, "signing.nk")))
		fetcher := b.client("fetcher")
		forge := func(name string) *world.ConfigMap {
			GinkgoHelper()
			cm := w.Create(ctx, name, world.Asking("mydata="+w.Origin.Page("/news").Says("asked for").URL()))
			want, sequence := eventuallyWanted(ctx, w, fetcher, name)
			want.Key = "password"
			stolen.Sign(want)
			forgeBody(ctx, fetcher, want, sequence)
			return cm
		}
		w.Breaks("key password was written without a request")
		before := forge("before")
		before.EventuallyHasData(ctx, "password", "forged")

		b.run(ctx, "identities", "--out", b.identities, "--revoke-signing-key")
		Eventually(ctx, func() []string { return w.Writer().Log.Matching("loaded the new content of file ") }).
			Should(HaveLen(1))
		suitetest.Must(w.Watcher().Stop(ctx))
		w.Watcher().Restart(ctx)
		after := forge("after")
		Eventually(ctx, func() int { return w.Stored(ctx, pipeline.Results, "curl.result.content.>") }).Should(BeZero())
		Expect(after.Get(ctx).Data).To(BeEmpty())
		By("writing requested keys afterwards")
		w.Launch(ctx, world.Fetcher)
		after.EventuallyHasData(ctx, "mydata", "asked for")
		Expect(after.Get(ctx).Data).NotTo(HaveKey("password"))
		before.EventuallyLacks(ctx, "password")
	})

	// The ID must be the same if another fetcher gets the redelivered message, and all fetchers share one
	// identity. So any fetcher can guess it.
	It("can suppress another fetcher's dead letter by its ID, but not the report of that failure", func(ctx SpecContext) {
		b := start(ctx, plain)
		suitetest.Must(pipeline.Ensure(ctx, b.jetStream(), pipeline.Topology{}))
		client := b.client("fetcher")
		key := pipeline.Key{Namespace: "default", Name: "cm", Key: "mydata"}
		other := pipeline.Key{Namespace: "default", Name: "other", Key: "mydata"}
		failure := &v1.Failure{Class: v1.FailureClass_FAILURE_CLASS_TIMEOUT, Host: "a.example.com"}
		Expect(client.PublishDeadLetter(ctx, other, &v1.DeadLetter{Failure: failure}, "1.7.dead")).To(Succeed())

		want := &v1.Want{Namespace: key.Namespace, Name: key.Name, Key: key.Key, Epoch: 1}
		Expect(client.PublishDeadLetter(ctx, key, &v1.DeadLetter{Want: want, Failure: failure}, "1.7.dead")).To(Succeed())
		Expect(client.PublishResult(ctx, &v1.Result{Want: want, Sequence: 7, Outcome: &v1.Result_Failure{Failure: failure}})).
			To(Succeed())
		for name, kept := range map[string]string{
			pipeline.DeadLetters: other.DeadLetterSubject("Timeout", "a.example.com"),
			pipeline.Results:     key.FailureSubject(),
		} {
			stream := suitetest.Must(b.jetStream().Stream(ctx, name))
			info := suitetest.Must(stream.Info(ctx, jetstream.WithSubjectFilter(">")))
			Expect(info.State.Subjects).To(Equal(map[string]uint64{kept: 1}))
			Expect(info.Config.Duplicates).To(BeNumerically("<=", 5*time.Minute))
		}
	})
})

var _ = Describe("A compromised watcher", func() {
	// Fetchers accept any message from it, and the writer trusts its signature.
	It("can write keys of new objects until the real watcher sees them", func(ctx SpecContext) {
		b, w := opened(ctx, nil)
		asked := world.Asking("mydata=" + w.Origin.Page("/news").Says("asked for").URL())
		seen := w.Create(ctx, "seen", asked)
		seen.EventuallyHasData(ctx, "mydata", "asked for")
		suitetest.Must(w.Watcher().Stop(ctx))
		stolen := suitetest.Must(signature.LoadSigner(filepath.Join(b.identities, "signing.nk")))
		watcher := b.client("watcher")
		epoch, _, err := pipeline.Epoch(ctx, watcher.JetStream())
		Expect(err).NotTo(HaveOccurred())
		url := w.Origin.Page("/forged").Says("forged").URL()
		forge := func(cm *world.ConfigMap, key string) {
			GinkgoHelper()
			want := wantOf(cm.Get(ctx), key)
			want.Url, want.Epoch, want.Cause = url, epoch, v1.Cause_CAUSE_NEW
			stolen.Sign(want)
			suitetest.Must(watcher.PublishWant(ctx, want, 0))
		}
		theirs := world.Holding("theirs", "value")
		unseen, owned, bare := w.Create(ctx, "unseen", asked), w.Create(ctx, "owned", asked, theirs),
			w.Create(ctx, "bare", theirs)
		for _, found := range []string{
			"S1: ConfigMap unseen at version", "S1: ConfigMap bare at version", "S1: ConfigMap owned at version",
			"S4: ConfigMap owned at version",
		} {
			w.Breaks(found)
		}
		for _, cm := range []*world.ConfigMap{seen, unseen, bare} {
			forge(cm, "password")
		}
		forge(owned, "theirs")
		unseen.EventuallyHasData(ctx, "password", "forged")
		bare.EventuallyHasData(ctx, "password", "forged")
		owned.EventuallyHasData(ctx, "theirs", "forged")
		w.EventuallyQuiet(ctx)
		Expect(seen.Get(ctx).Data).To(Equal(map[string]string{"mydata": "asked for"}))

		By("keeping keys that are requested, or that the writer did not write")
		for _, cm := range []*world.ConfigMap{seen, bare} {
			remove := &v1.Result_Sync{Sync: &v1.Sync{Remove: true}}
			Expect(watcher.PublishResult(ctx, &v1.Result{Want: wantOf(cm.Get(ctx), status.ObjectKey), Outcome: remove})).
				To(Succeed())
		}
		eventuallyHandled(ctx, w)
		w.EventuallyQuiet(ctx)
		Expect(seen.Get(ctx).Data).To(Equal(map[string]string{"mydata": "asked for"}))
		Expect(bare.Get(ctx).Data).To(HaveKeyWithValue("theirs", "value"))

		By("removing written keys, together with the values they replaced")
		w.Watcher().Restart(ctx)
		bare.EventuallyLacks(ctx, "password")
		for cm, key := range map[*world.ConfigMap]string{unseen: "password", owned: "theirs"} {
			cm.EventuallyLacks(ctx, key)
			cm.EventuallyHasData(ctx, "mydata", "asked for")
		}
	})
})

var _ = Describe("A compromised replayer", func() {
	// forge makes NATS publish a want with another URL, because NATS publishes the payload of a timer on any
	// subject of the stream of requests.
	forge := func(ctx context.Context, replayer *nats.Conn, cm *world.ConfigMap, key pipeline.Key, url string,
		rules ...string,
	) {
		GinkgoHelper()
		want := wantOf(cm.Get(ctx), key.Key)
		want.Url, want.Epoch, want.Expect = url, 1, rules
		timer := nats.NewMsg(key.TimerSubject())
		timer.Data = suitetest.Must(proto.Marshal(want))
		timer.Header.Set("Nats-Schedule", "@at "+time.Now().UTC().Format(time.RFC3339Nano))
		timer.Header.Set("Nats-Schedule-Target", key.WantSubject())
		Expect(replayer.PublishMsg(timer)).To(Succeed())
	}

	// Fetchers verify a signature only before they send credentials or store a part of a response.
	It("can make a fetcher GET any URL, but can neither read the response nor write it", func(ctx SpecContext) {
		b, w := opened(ctx, nil)
		_, cm := w.Fill(ctx, "target", "asked for")
		key := pipeline.Key{Namespace: w.Namespace, Name: "target", Key: "mydata"}

		replayer := b.connect("replayer")
		seen := make(chan *nats.Msg, 1<<10)
		suitetest.Must(replayer.ChanSubscribe(key.ContentSubject(), seen))
		page := w.Origin.Page("/internal").Says("of others")
		forge(ctx, replayer, cm, key, page.URL())
		Eventually(ctx, page.Hits).Should(Equal(1))
		w.EventuallyQuiet(ctx)
		By("having a rule reject it")
		forge(ctx, replayer, cm, key, page.URL(), "false")
		Eventually(ctx, func() int { return w.Stored(ctx, pipeline.DeadLetters, "curl.failure.ContentRejected.>") }).
			Should(Equal(1))
		for _, m := range natstest.Messages(GinkgoTB(), w.JetStream, pipeline.DeadLetters) {
			Expect(string(m.Data)).NotTo(ContainSubstring("of others"))
		}
		w.EventuallyQuiet(ctx)
		Expect(replayer.Flush()).To(Succeed())
		Expect(seen).To(BeEmpty())
		Expect(cm.Get(ctx).Data).To(Equal(map[string]string{"mydata": "asked for"}))
	})

	It("cannot make a fetcher send credentials to an unsigned URL, and the key recovers", func(ctx SpecContext) {
		b, w := opened(ctx, []string{"--audit-interval=1s"}, world.Fetcher)
		headers := filepath.Join(GinkgoT().TempDir(), "headers.yaml")
		Expect(os.WriteFile(headers, fmt.Appendf(nil, `- {host: "*", ports: [%d], schemes: [http], namespaces: ["*"], `+
			`headers: {Authorization: Bearer secret}}`, w.Origin.Port()), 0o600)).To(Succeed())
		w.Launch(ctx, world.Fetcher, "--header-file="+headers).EventuallyReady(ctx)
		internal := w.Origin.Page("/internal").Says("of others")
		asked, cm := w.Fill(ctx, "target", "asked for", world.Annotated("x-kv8s.io/curl-refresh", "1s"))
		replayer, key := b.connect("replayer"), pipeline.Key{Namespace: w.Namespace, Name: "target", Key: "mydata"}
		Eventually(ctx, func() int {
			forge(ctx, replayer, cm, key, internal.URL()) // the refresh may replace the forged timer before it fires
			return w.Stored(ctx, pipeline.DeadLetters, "curl.failure.AddressDenied.>")
		}).WithPolling(time.Second).Should(BeNumerically(">=", 1))
		asked.Says("later")
		cm.Within(time.Minute).EventuallyHasData(ctx, "mydata", "later")
		hits := asked.Hits() // refreshes continue, so read the other counter last
		Expect(asked.Authorized()).To(BeNumerically(">=", hits))
		Expect(internal.Hits()).To(BeZero())
	})
})

var _ = Describe("A compromised service that acknowledges messages without handling them", func() {
	DescribeTable("keeps a key empty only until it is replaced", func(ctx SpecContext, identity, stream, consumer string) {
		b, w := opened(ctx, []string{"--audit-interval=1s"}, identity)
		cm := w.Create(ctx, "news", world.Asking("mydata="+w.Origin.Page("/news").Says("asked for").URL()))
		work := suitetest.Must(b.client(identity).JetStream().Consumer(ctx, stream, consumer))
		Eventually(ctx, func() error {
			taken, err := work.Next(jetstream.FetchMaxWait(time.Second))
			if err != nil {
				return err
			}
			return taken.DoubleAck(ctx)
		}).Should(Succeed())
		Expect(cm.Get(ctx).Data).To(BeEmpty())
		w.Launch(ctx, identity)
		cm.Within(time.Minute).EventuallyHasData(ctx, "mydata", "asked for")
	},
		Entry(nil, world.Fetcher, pipeline.Requests, pipeline.FetcherConsumer),
		Entry(nil, world.Writer, pipeline.Results, pipeline.WriterConsumer),
	)
})
