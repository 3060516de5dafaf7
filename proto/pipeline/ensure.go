package pipeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
)

// ErrIncompatible means that a stream or consumer exists, and that the server cannot change its
// configuration to the required one.
var ErrIncompatible = errors.New("incompatible configuration")

// ErrNoAudit means that only the audit stream cannot be created or updated. Data keeps flowing, but
// operators cannot act.
var ErrNoAudit = errors.New("no stream for the audit")

// Ensure creates the streams and consumers, or updates existing ones. It is safe to call at any
// time and from several processes; it writes nothing if nothing changes. It returns the epoch of
// the pipeline: the creation time of Requests in Unix milliseconds.
//
// A difference that the server cannot change (retention, storage) gives an error that wraps
// ErrIncompatible and contains the fix. With an error that wraps ErrNoAudit the epoch is valid.
func Ensure(ctx context.Context, js jetstream.JetStream, t Topology) (epoch int64, err error) {
	consumers, atFirst := consumers(), t.atFirst().streams()
	for i, want := range t.streams() {
		stream, err := ensureStream(ctx, js, want, atFirst[i], t.KeepExisting)
		if err != nil && want.Name == Audit { // the last one
			return epoch, fmt.Errorf("%w: %w", ErrNoAudit, err)
		}
		if err != nil {
			return 0, err
		}
		if want.Name == Requests {
			epoch = stream.CachedInfo().Created.UnixMilli()
		}
		consumer, ok := consumers[want.Name]
		if !ok {
			continue
		}
		if err := ensureConsumer(ctx, js, want.Name, consumer, t.KeepExisting); err != nil {
			return 0, err
		}
	}
	return epoch, nil
}

func ensureStream(ctx context.Context, js jetstream.JetStream, want, atFirst jetstream.StreamConfig,
	onlyCreate bool,
) (jetstream.Stream, error) {
	stream, err := js.Stream(ctx, want.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		stream, err = js.CreateStream(ctx, atFirst)
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // another process was faster
			stream, err = js.Stream(ctx, want.Name)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("create or look up stream %s: %w", want.Name, err)
	}
	have := stream.CachedInfo().Config
	if differ := fixed(have, want); len(differ) > 0 {
		return nil, fmt.Errorf("stream %s exists with %s, which cannot be changed; remove it with `nats stream rm %s`: %w",
			want.Name, strings.Join(differ, " and "), want.Name, ErrIncompatible)
	}
	if next := overlay(have, want); !onlyCreate && !reflect.DeepEqual(have, next) {
		if stream, err = js.UpdateStream(ctx, next); err != nil {
			return nil, fmt.Errorf("update stream %s: %w", want.Name, err)
		}
	}
	if want.AllowMsgSchedules && !stream.CachedInfo().Config.AllowMsgSchedules {
		// A server that does not know the field drops it.
		return nil, fmt.Errorf("stream %s: the server cannot schedule messages; NATS 2.12 or newer is required: %w",
			want.Name, ErrIncompatible)
	}
	return stream, nil
}

// fixed returns the differences between have and want that the server cannot change.
func fixed(have, want jetstream.StreamConfig) []string {
	var differ []string
	if have.Retention != want.Retention {
		differ = append(differ, fmt.Sprintf("retention %s instead of %s", have.Retention, want.Retention))
	}
	if have.Storage != want.Storage {
		differ = append(differ, fmt.Sprintf("storage %s instead of %s", have.Storage, want.Storage))
	}
	if have.Mirror != nil || len(have.Sources) > 0 {
		differ = append(differ, "a mirror or sources")
	}
	return differ
}

// overlay returns have with every property that the pipeline relies on taken from want. Other
// properties (placement, metadata, …) remain the operator's.
func overlay(have, want jetstream.StreamConfig) jetstream.StreamConfig {
	next := have
	next.Description = want.Description
	next.Subjects = want.Subjects
	next.MaxMsgsPerSubject = want.MaxMsgsPerSubject
	next.Discard = want.Discard
	next.DiscardNewPerSubject = want.DiscardNewPerSubject
	if want.Name != Failures || want.MaxAge != 0 { // a choice there, elsewhere 0 is no limit
		next.MaxAge = want.MaxAge
	}
	next.MaxMsgs = -1
	next.MaxBytes = cmp.Or(want.MaxBytes, have.MaxBytes)
	next.MaxMsgSize = cmp.Or(want.MaxMsgSize, -1)
	next.Duplicates = want.Duplicates
	next.NoAck = false
	next.AllowDirect = want.AllowDirect
	next.RePublish = want.RePublish
	// The server cannot disable either of them.
	next.DenyDelete = want.DenyDelete || have.DenyDelete
	next.DenyPurge = want.DenyPurge || have.DenyPurge
	next.AllowMsgTTL = want.AllowMsgTTL || have.AllowMsgTTL
	next.AllowMsgSchedules = want.AllowMsgSchedules || have.AllowMsgSchedules
	next.Replicas = cmp.Or(want.Replicas, have.Replicas)
	return next
}

func ensureConsumer(ctx context.Context, js jetstream.JetStream, stream string, want jetstream.ConsumerConfig,
	onlyCreate bool,
) error {
	c, err := consumerConfig(ctx, js, stream, want.Durable)
	switch {
	case errors.Is(err, jetstream.ErrNotPullConsumer):
		return fmt.Errorf("consumer %s of stream %s exists and is a push consumer, which cannot be changed; "+
			"remove it with `nats consumer rm %s %s`: %w", want.Durable, stream, stream, want.Durable, ErrIncompatible)
	case errors.Is(err, jetstream.ErrConsumerNotFound):
		if _, err = js.CreateOrUpdateConsumer(ctx, stream, want); err != nil {
			return fmt.Errorf("create consumer %s of stream %s: %w", want.Durable, stream, err)
		}
		return nil
	case err != nil:
		return err
	}
	if !sameDelivery(c, want) {
		return fmt.Errorf("consumer %s of stream %s exists with acknowledgement %s and delivery %s, "+
			"which cannot be changed; "+
			"remove it with `nats consumer rm %s %s`: %w",
			want.Durable, stream, c.AckPolicy, c.DeliverPolicy, stream, want.Durable, ErrIncompatible)
	}
	next := overlayConsumer(c, want)
	if onlyCreate || reflect.DeepEqual(c, next) {
		return nil
	}
	if _, err := js.CreateOrUpdateConsumer(ctx, stream, next); err != nil {
		return fmt.Errorf("update consumer %s of stream %s: %w", want.Durable, stream, err)
	}
	return nil
}

// consumerConfig looks up a consumer. The error wraps jetstream.ErrConsumerNotFound, or
// jetstream.ErrNotPullConsumer for a push consumer.
func consumerConfig(ctx context.Context, js jetstream.JetStream, stream, name string) (jetstream.ConsumerConfig,
	error,
) {
	consumer, err := js.Consumer(ctx, stream, name)
	if err != nil {
		return jetstream.ConsumerConfig{}, fmt.Errorf("look up consumer %s of stream %s: %w", name, stream, err)
	}
	return consumer.CachedInfo().Config, nil
}

// sameDelivery reports whether two consumers agree in the properties that the server cannot change.
func sameDelivery(a, b jetstream.ConsumerConfig) bool {
	return a.AckPolicy == b.AckPolicy && a.DeliverPolicy == b.DeliverPolicy
}

// overlayConsumer is overlay for consumers.
func overlayConsumer(have, want jetstream.ConsumerConfig) jetstream.ConsumerConfig {
	next := have
	next.Description = want.Description
	next.FilterSubject, next.FilterSubjects = "", want.FilterSubjects
	next.AckWait, next.BackOff = want.AckWait, nil
	next.MaxDeliver, next.MaxAckPending = want.MaxDeliver, want.MaxAckPending
	next.HeadersOnly = false // a want without its payload reads as a tombstone
	return next
}

// Epoch returns the creation time of Requests in Unix milliseconds and the stream's first sequence,
// which a purge increases.
func Epoch(ctx context.Context, js jetstream.JetStream) (epoch int64, first uint64, err error) {
	stream, err := js.Stream(ctx, Requests)
	if err != nil {
		return 0, 0, fmt.Errorf("look up stream %s: %w", Requests, err)
	}
	info := stream.CachedInfo()
	return info.Created.UnixMilli(), info.State.FirstSeq, nil
}
