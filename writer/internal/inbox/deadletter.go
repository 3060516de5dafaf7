package inbox

import (
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/writer/internal/plan"
)

// maxDeadLetter is how much of a message, and of the want in it, is kept in a dead
// letter, in bytes. What a message claims to want may be anything.
const maxDeadLetter = 64 << 10

// newDeadLetter returns what is kept of a message that cannot be applied.
func newDeadLetter(m jetstream.Msg, item plan.Item, why error) *v1.DeadLetter {
	d := &v1.DeadLetter{
		Failure:  &v1.Failure{Class: classOf(why), GaveUp: true},
		Sequence: item.Result.GetSequence(),
		Subject:  m.Subject(),
		Payload:  m.Data()[:min(len(m.Data()), maxDeadLetter)],

		Traceparent: pipeline.Traceparent(item.Trace),
	}
	if want := item.Result.GetWant(); want != nil && proto.Size(want) <= maxDeadLetter {
		d.Want = want
		d.Failure.Host = pipeline.HostOf(want.GetUrl())
	}
	return d
}

// deadLetterID names a message, so that its dead letter is kept only once.
func deadLetterID(m jetstream.Msg) string {
	meta, err := m.Metadata()
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%s.%d.%d", meta.Stream, meta.Sequence.Stream, meta.Timestamp.UnixNano())
}
