package engine_test

import (
	"github.com/nats-io/nats.go"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// replicaLags makes reads of the stream respond like an empty replica, until it catches up.
func (w *world) replicaLags() (catchUp func()) {
	GinkgoHelper()
	w.answersReads(false)
	sub, err := w.js.Conn().Subscribe("$JS.API.DIRECT.GET."+pipeline.Requests+".>", func(m *nats.Msg) {
		defer GinkgoRecover()
		Expect(m.RespondMsg(&nats.Msg{
			Header: nats.Header{"Status": {"404"}, "Description": {"Message Not Found"}},
		})).To(Succeed())
	})
	Expect(err).NotTo(HaveOccurred())
	Expect(w.js.Conn().Flush()).To(Succeed())
	return func() {
		GinkgoHelper()
		Expect(sub.Unsubscribe()).To(Succeed())
		w.answersReads(true)
	}
}

// answersReads determines whether the server itself responds.
func (w *world) answersReads(yes bool) {
	GinkgoHelper()
	stream := must(w.js.Stream(w.ctx, pipeline.Requests))
	config := stream.CachedInfo().Config
	config.AllowDirect = yes
	Expect(w.js.UpdateStream(w.ctx, config)).Error().NotTo(HaveOccurred())
}
