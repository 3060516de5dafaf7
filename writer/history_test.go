package writer_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"google.golang.org/protobuf/types/known/durationpb"
	corev1 "k8s.io/api/core/v1"

	"github.com/kv8s/curl-me-that/deploy/testkit/natstest"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

var _ = Describe("The history", func() {
	versions := func() ([]*v1.Version, error) {
		return w.client.Versions(w.ctx(), pipeline.Key{Namespace: w.namespace, Name: "cm", Key: "mydata"})
	}
	write := func(bodies ...string) {
		GinkgoHelper()
		for _, body := range bodies {
			w.apply(w.content(readFirst(w.want(w.get("cm"), "mydata", url)), body))
		}
	}
	pin := func(body string, more ...string) *corev1.ConfigMap {
		GinkgoHelper()
		return w.edit("cm", func(cm *corev1.ConfigMap) {
			cm.Annotations["x-kv8s.io/curl-sha256"] = "mydata=" + sum(body)
			for _, interval := range more {
				cm.Annotations["x-kv8s.io/curl-refresh"] = interval
			}
		})
	}
	offer := func(body string) {
		GinkgoHelper()
		want := readFirst(w.want(w.get("cm"), "mydata", url))
		want.Sha256, want.Refresh = sum("one"), durationpb.New(time.Hour)
		w.signer.Sign(want)
		w.apply(w.content(want, body))
	}

	BeforeEach(func(ctx SpecContext) {
		suitetest.Must(pipeline.Ensure(ctx, w.js, pipeline.Topology{HistoryBytes: 16 << 20}))
		w.start()
		w.create(asking("cm", "mydata="+url))
	})

	It("writes nothing during 1,000 updates of a pinned key, and reports each content once", func() {
		write("one")
		cm := pin("one", "1h")
		offered := map[string]bool{}
		for range 1000 {
			body := fmt.Sprint("update ", rand.IntN(60))
			offered[body] = true
			offer(body)
			Expect(w.get("cm").Data).To(HaveKeyWithValue("mydata", "one"))
		}
		Expect(w.events(cm)).To(HaveLen(len(offered)))
		Expect(suitetest.Must(versions())[0].GetAvailable()).To(BeTrue(), "so that no rollback takes it for a former value")
	})

	DescribeTable("does not write a body that lacks the pinned digest", func(forged string) {
		write("two")
		if forged != "" {
			suitetest.Must(w.js.PublishMsg(w.ctx(), &nats.Msg{
				Subject: pipeline.BodySubject(w.namespace, sum("one")), Data: []byte(forged),
			}))
		}
		w.apply(w.reconcile(pin("one")))
		Expect(w.get("cm").Data).To(HaveKeyWithValue("mydata", "two"))
		Expect(entry(w.get("cm"), "mydata").SHA256).To(Equal(sum("two")))
	},
		Entry("if it is forged", "forged"),
		Entry("if the history lacks it", ""),
	)

	DescribeTable("leaves a pinned key untouched, and keys are filled,", func(disturb func(jetstream.Stream)) {
		write("one", "two")
		Eventually(versions).Should(HaveLen(2))
		cm := pin("two")
		disturb(suitetest.Must(w.js.Stream(w.ctx(), pipeline.History)))
		w.calls.reset()
		w.apply(w.reconcile(cm))
		Expect(w.calls.all()).NotTo(ContainElement("PATCH configmaps"))
		Expect(w.get("cm").Data).To(HaveKeyWithValue("mydata", "two"))
		w.apply(w.content(readFirst(w.want(w.create(asking("other", "mydata="+url)), "mydata", url)), "other body"))
		Expect(w.get("other").Data).To(HaveKeyWithValue("mydata", "other body"))
		w.apply(w.reconcile(pin("three")))
		Expect(w.get("cm").Data).To(HaveKeyWithValue("mydata", "two"))
	},
		Entry("after its stream is lost", func(jetstream.Stream) {
			Expect(w.js.DeleteStream(w.ctx(), pipeline.History)).To(Succeed())
		}),
		Entry("after it is wiped", func(s jetstream.Stream) { Expect(s.Purge(w.ctx())).To(Succeed()) }),
		Entry("after it is restored from a backup without the held body", func(s jetstream.Stream) {
			first := suitetest.Must(s.GetLastMsgForSubject(w.ctx(), pipeline.BodySubject(w.namespace, sum("two")))).Sequence
			for n := first; n <= s.CachedInfo().State.LastSeq; n++ {
				Expect(s.DeleteMsg(w.ctx(), n)).To(Succeed())
			}
		}),
		Entry("while it is full", func(s jetstream.Stream) {
			config := s.CachedInfo().Config
			config.Discard, config.MaxMsgs = jetstream.DiscardNew, 1
			suitetest.Must(w.js.UpdateStream(w.ctx(), config))
		}),
	)
})

var _ = Describe("A version", func() {
	keep := func(ctx SpecContext, secret bool) {
		GinkgoHelper()
		suitetest.Must(pipeline.Ensure(ctx, w.js, pipeline.Topology{HistoryBytes: 16 << 20}))
		w.start()
		cm := w.create(asking("cm", "a="+url+" b="+url))
		for _, key := range []string{"a", "b"} {
			r := w.content(readFirst(w.want(cm, key, url)), key+" body")
			r.GetContent().Credential = secret
			w.apply(r)
		}
		Expect(w.get("cm").Data).To(HaveLen(2))
	}
	kept := func() uint64 { return natstest.State(GinkgoTB(), w.js, pipeline.History).Msgs }

	It("that was fetched with a credential is kept only if the operator says so", func(ctx SpecContext) {
		keep(ctx, true)
		Expect(w.Value(own + `versions_total{outcome="credential"}`)()).To(BeEquivalentTo(2))
		Expect(kept()).To(BeZero())
		w = newWorld(ctx)
		w.config.History.Credentials = true
		keep(ctx, true)
		Eventually(kept).Should(BeEquivalentTo(4))
	})

	It("is kept although the API server goes away before the Event about its key", func(ctx SpecContext) {
		suitetest.Must(pipeline.Ensure(ctx, w.js, pipeline.Topology{HistoryBytes: 16 << 20}))
		w.start()
		want := readFirst(w.want(w.create(asking("cm", "a="+url)), "a", url))
		w.apply(w.failure(want, 500))
		var away atomic.Bool
		w.calls.with(func(r *http.Request, next send) (*http.Response, error) {
			if away.Load() {
				return nil, errCut
			}
			away.Store(r.Method == http.MethodPatch)
			return next(r)
		})
		w.publish(w.content(want, "body"))
		Eventually(kept).Should(BeEquivalentTo(2), "the body and its version")
	})

	It("is kept although the writer stops while it writes the key", func(ctx SpecContext) {
		suitetest.Must(pipeline.Ensure(ctx, w.js, pipeline.Topology{HistoryBytes: 16 << 20}))
		w.start()
		patching, proceed := make(chan struct{}, 8), make(chan struct{})
		w.calls.with(func(r *http.Request, next send) (*http.Response, error) {
			if r.Method == http.MethodPatch {
				patching <- struct{}{}
				<-proceed
			}
			return next(r)
		})
		for n := range cap(patching) {
			w.publish(w.content(w.want(w.create(asking(fmt.Sprint("cm-", n), "a="+url)), "a", url), fmt.Sprint("body ", n)))
		}
		Eventually(patching).Should(HaveLen(cap(patching)))
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			defer GinkgoRecover()
			w.Stop()
		}()
		Eventually(w.Health.Ready).Should(BeFalse())
		close(proceed)
		<-stopped
		Expect(kept()).To(BeEquivalentTo(2*cap(patching)), "bodies and their versions")
	})

	It("has the URL with a mark instead of its query", func(ctx SpecContext) {
		keep(ctx, false)
		var list []*v1.Version
		Eventually(func() ([]*v1.Version, error) {
			var err error
			list, err = w.client.Versions(ctx, pipeline.Key{Namespace: w.namespace, Name: "cm", Key: "a"})
			return list, err
		}).Should(HaveLen(1))
		Expect(list[0].GetUrl()).To(Equal("https://data.example.com/greeting?…"))
		Expect(list[0].GetSize()).To(BeEquivalentTo(len("a body")))
	})
})
