package engine_test

import (
	"errors"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"google.golang.org/protobuf/proto"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// timer is a pending timer.
type timer struct {
	*v1.Due
	at     time.Time
	header nats.Header
}

// timerOf returns the pending timer of a key, or nil.
func (w *world) timerOf(k pipeline.Key) *timer {
	GinkgoHelper()
	stream := must(w.js.Stream(w.ctx, pipeline.Requests))
	m, err := stream.GetLastMsgForSubject(w.ctx, k.Timer())
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil
	}
	Expect(err).NotTo(HaveOccurred())
	due := must(pipeline.DecodeDue(k, m.Data))
	at := must(time.Parse(time.RFC3339Nano, strings.TrimPrefix(m.Header.Get("Nats-Schedule"), "@at ")))
	return &timer{Due: due, at: at, header: m.Header}
}

// waiting returns the keys that have a pending timer.
func (w *world) waiting(keys []pipeline.Key) (waiting []pipeline.Key) {
	GinkgoHelper()
	for _, k := range keys {
		if w.timerOf(k) != nil {
			waiting = append(waiting, k)
		}
	}
	return waiting
}

func (w *world) timer() *timer { GinkgoHelper(); return w.timerOf(key) }

// messages returns the messages of a stream by sequence.
func (w *world) messages(name string) (all []*jetstream.RawStreamMsg) {
	GinkgoHelper()
	stream := must(w.js.Stream(w.ctx, name))
	state := stream.CachedInfo().State
	for seq := max(state.FirstSeq, 1); seq <= state.LastSeq; seq++ {
		m, err := stream.GetMsg(w.ctx, seq)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue
		}
		Expect(err).NotTo(HaveOccurred())
		all = append(all, m)
	}
	return all
}

// contents returns the number of published bodies.
func (w *world) contents() int {
	GinkgoHelper()
	stream := must(w.js.Stream(w.ctx, pipeline.Results))
	info := must(stream.Info(w.ctx, jetstream.WithSubjectFilter("curl.result.content.>")))
	return len(info.State.Subjects)
}

// results returns the published results.
func (w *world) results() (all []*v1.Result) {
	GinkgoHelper()
	for _, m := range w.messages(pipeline.Results) {
		_, k, err := pipeline.ParseSubject(m.Subject)
		Expect(err).NotTo(HaveOccurred())
		all = append(all, must(pipeline.DecodeResult(k, m.Data)))
	}
	return all
}

// result returns the only published result.
func (w *world) result() *v1.Result {
	GinkgoHelper()
	all := w.results()
	Expect(all).To(HaveLen(1))
	return all[0]
}

// lastResult returns the newest result.
func (w *world) lastResult() *v1.Result {
	GinkgoHelper()
	all := w.results()
	Expect(all).NotTo(BeEmpty())
	return all[len(all)-1]
}

func (w *world) deadLetters() (all []*v1.DeadLetter) {
	GinkgoHelper()
	for _, m := range w.messages(pipeline.Failures) {
		d := new(v1.DeadLetter)
		Expect(proto.Unmarshal(m.Data, d)).To(Succeed())
		all = append(all, d)
	}
	return all
}

// deadLetter returns the only dead letter.
func (w *world) deadLetter() *v1.DeadLetter {
	GinkgoHelper()
	all := w.deadLetters()
	Expect(all).To(HaveLen(1))
	return all[0]
}

// pending returns the number of undelivered and unacknowledged messages.
func (w *world) pending() uint64 {
	GinkgoHelper()
	consumer := must(w.js.Consumer(w.ctx, pipeline.Requests, pipeline.FetcherConsumer))
	info := must(consumer.Info(w.ctx))
	return info.NumPending + uint64(info.NumAckPending)
}
