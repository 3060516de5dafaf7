package natstest

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// Broker runs a server until the test ends.
func Broker(tb testing.TB, o Options) *Server {
	tb.Helper()
	s, err := Run(o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	return s
}

// Connect opens a new connection to a server until the test ends.
func Connect(tb testing.TB, s *Server, opts ...nats.Option) jetstream.JetStream {
	tb.Helper()
	js, closeConn, err := s.JetStream(opts...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(closeConn)
	return js
}

// Ensured runs a server with all streams and consumers, and returns a connection to it and the
// epoch of the pipeline.
func Ensured(tb testing.TB, t pipeline.Topology) (*Server, jetstream.JetStream, int64) {
	tb.Helper()
	s := Broker(tb, Options{})
	js := Connect(tb, s)
	epoch, err := pipeline.Ensure(tb.Context(), js, t)
	if err != nil {
		tb.Fatal(err)
	}
	return s, js, epoch
}

// Cluster runs a cluster of three servers until the test ends, and also returns their addresses for
// clients.
func Cluster(tb testing.TB) (servers []*Server, addresses string) {
	tb.Helper()
	servers, err := RunCluster(3, Options{})
	if err != nil {
		tb.Fatal(err)
	}
	urls := make([]string, len(servers))
	for i, s := range servers {
		tb.Cleanup(func() { _ = s.Close() })
		urls[i] = s.URL()
	}
	return servers, strings.Join(urls, ",")
}

// Messages returns the messages of a stream, oldest first, and none if it does not exist.
func Messages(tb testing.TB, js jetstream.JetStream, name string) (all []*jetstream.RawStreamMsg) {
	tb.Helper()
	stream, state := streamOf(tb, js, name)
	for seq := max(state.FirstSeq, 1); seq <= state.LastSeq; seq++ {
		m, err := stream.GetMsg(tb.Context(), seq)
		switch {
		case err == nil:
			all = append(all, m)
		case !errors.Is(err, jetstream.ErrMsgNotFound):
			tb.Fatal(err)
		}
	}
	return all
}

// State returns the state of a stream, which is empty if it does not exist.
func State(tb testing.TB, js jetstream.JetStream, name string) jetstream.StreamState {
	tb.Helper()
	_, state := streamOf(tb, js, name)
	return state
}

func streamOf(tb testing.TB, js jetstream.JetStream, name string) (jetstream.Stream, jetstream.StreamState) {
	tb.Helper()
	stream, err := js.Stream(tb.Context(), name)
	switch {
	case err == nil:
		return stream, stream.CachedInfo().State
	case !errors.Is(err, jetstream.ErrStreamNotFound):
		tb.Fatal(err)
	}
	return nil, jetstream.StreamState{}
}

// AckRequests acknowledges all requests, like fetchers that lose them. A request may be delivered a moment after it was
// published.
func AckRequests(tb testing.TB, js jetstream.JetStream) {
	tb.Helper()
	ctx, last := tb.Context(), uint64(0)
	if err := pipeline.NewClient(js).LoadWants(ctx, func(m pipeline.Message) error {
		last = max(last, m.Sequence)
		return nil
	}); err != nil {
		tb.Fatal(err)
	}
	for {
		consumer, err := js.Consumer(ctx, pipeline.Requests, pipeline.FetcherConsumer)
		if err != nil {
			tb.Fatal(err)
		}
		if i := consumer.CachedInfo(); i.AckFloor.Stream >= last && i.NumAckPending == 0 && i.NumPending == 0 {
			return
		}
		batch, err := consumer.FetchNoWait(1000)
		if err != nil {
			tb.Fatal(err)
		}
		for m := range batch.Messages() {
			if err := m.Ack(); err != nil {
				tb.Fatal(err)
			}
		}
	}
}

// Due publishes a want of a key, and returns a due for it.
func Due(tb testing.TB, js jetstream.JetStream, k pipeline.Key) *v1.Due {
	tb.Helper()
	want := Want(k, "https://a.example")
	seq, err := pipeline.NewClient(js).PublishWant(tb.Context(), want, 0)
	if err != nil {
		tb.Fatal(err)
	}
	return &v1.Due{Want: want, WantSequence: seq}
}

// Want returns a want of a key.
func Want(k pipeline.Key, url string) *v1.Want {
	return &v1.Want{Namespace: k.Namespace, Name: k.Name, Key: k.Key, Uid: "uid", Url: url, Epoch: 1}
}

// Numbered returns the n-th of many keys.
func Numbered(n int) pipeline.Key {
	return pipeline.Key{Namespace: "default", Name: fmt.Sprintf("cm-%05d", n), Key: "k"}
}
