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

// Ensure creates the streams and consumers, or updates existing ones. It is safe to call at any
// time and from several processes. It writes nothing if nothing changes. It returns the epoch of
// the pipeline: the creation time of Requests in Unix milliseconds.
//
// A difference that the server cannot change (retention, storage) gives an error that wraps
// ErrIncompatible and contains the fix.
func Ensure(ctx context.Context, js jetstream.JetStream, t Topology) (epoch int64, err error) {
	e := ensurer{js: js, topology: t}
	return e.run(ctx)
}

// Differences returns what Ensure would create or change, one sentence each, without changing anything.
// It only needs the right to look up streams and consumers.
func Differences(ctx context.Context, js jetstream.JetStream, t Topology) ([]string, error) {
	e := ensurer{js: js, topology: t, dry: true}
	_, err := e.run(ctx)
	return e.differences, err
}

// ensurer makes or, if dry, lists changes.
type ensurer struct {
	js          jetstream.JetStream
	topology    Topology
	dry         bool
	differences []string
}

// lists records a difference on a dry run, and reports whether it did. Otherwise the caller makes
// the change.
func (e *ensurer) lists(difference string) bool {
	if e.dry {
		e.differences = append(e.differences, difference)
	}
	return e.dry
}

func (e *ensurer) run(ctx context.Context) (epoch int64, err error) {
	consumers, initial := consumers(), e.topology.withDefaults().streams()
	for i, want := range e.topology.streams() {
		stream, err := e.stream(ctx, want, initial[i])
		if want.Name == History && err != nil && ctx.Err() == nil {
			if e.topology.OnHistoryRejected != nil {
				e.topology.OnHistoryRejected(err)
			}
			continue
		}
		if err != nil {
			return 0, err
		}
		if stream != nil && want.Name == Requests {
			epoch = stream.CachedInfo().Created.UnixMilli()
		}
		consumer, ok := consumers[want.Name]
		if !ok || stream == nil {
			continue
		}
		if err := e.consumer(ctx, want.Name, consumer); err != nil {
			return 0, err
		}
	}
	return epoch, nil
}

// stream ensures one stream, which initial creates. It returns nil if it only listed that the stream
// is missing.
func (e *ensurer) stream(ctx context.Context, want, initial jetstream.StreamConfig) (jetstream.Stream, error) {
	stream, err := e.js.Stream(ctx, want.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		if e.lists("stream " + want.Name + " does not exist") {
			return nil, nil //nolint:nilnil // documented
		}
		stream, err = e.js.CreateStream(ctx, initial)
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // another process was faster
			stream, err = e.js.Stream(ctx, want.Name)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("create or look up stream %s: %w", want.Name, err)
	}
	have := stream.CachedInfo().Config
	if differ := strings.Join(conflicts(have, want), " and "); differ != "" {
		sentence := "stream " + want.Name + " has " + differ + ", which cannot be changed"
		if !e.lists(sentence) {
			return nil, fmt.Errorf("%s, remove it with `nats stream rm %s`: %w", sentence, want.Name, ErrIncompatible)
		}
	}
	next := overlay(have, want)
	if !e.topology.KeepExisting && !reflect.DeepEqual(have, next) &&
		!e.lists("stream "+want.Name+" does not have the configuration that this version needs") {
		if stream, err = e.js.UpdateStream(ctx, next); err != nil {
			return nil, fmt.Errorf("update stream %s: %w", want.Name, err)
		}
	}
	if want.AllowMsgSchedules && !e.dry && !stream.CachedInfo().Config.AllowMsgSchedules {
		// A server that does not know the field drops it.
		return nil, fmt.Errorf("stream %s: the server cannot schedule messages, NATS %s or newer is required: %w",
			want.Name, MinServer, ErrIncompatible)
	}
	return stream, nil
}

// conflicts returns the differences between have and want that the server cannot change.
func conflicts(have, want jetstream.StreamConfig) []string {
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
	if want.Name != DeadLetters || want.MaxAge != 0 { // there 0 keeps the current age, elsewhere it means no limit
		next.MaxAge = want.MaxAge
	}
	next.MaxMsgs = -1
	next.MaxBytes = cmp.Or(want.MaxBytes, have.MaxBytes)
	if want.Name == History { // its flag has a default, which must not undo a raised limit
		next.MaxBytes = max(want.MaxBytes, have.MaxBytes)
	}
	next.MaxMsgSize = cmp.Or(want.MaxMsgSize, -1)
	next.Duplicates = want.Duplicates
	next.NoAck = false
	next.AllowDirect = want.AllowDirect
	next.RePublish = nil
	next.SubjectTransform = nil
	next.ConsumerLimits = jetstream.StreamConsumerLimits{} // they would undo a part of overlayConsumer
	// The server cannot disable either of them.
	next.DenyDelete = want.DenyDelete || have.DenyDelete
	next.DenyPurge = want.DenyPurge || have.DenyPurge
	next.AllowMsgTTL = want.AllowMsgTTL || have.AllowMsgTTL
	next.AllowMsgSchedules = want.AllowMsgSchedules || have.AllowMsgSchedules
	next.Replicas = cmp.Or(want.Replicas, have.Replicas)
	return next
}

func (e *ensurer) consumer(ctx context.Context, stream string, want jetstream.ConsumerConfig) error {
	name := "consumer " + want.Durable + " of stream " + stream
	have, err := e.js.Consumer(ctx, stream, want.Durable)
	conflict := ""
	switch {
	case errors.Is(err, jetstream.ErrConsumerNotFound) && e.lists(name+" does not exist"):
		return nil
	case errors.Is(err, jetstream.ErrConsumerNotFound):
		return e.update(ctx, stream, want)
	case errors.Is(err, jetstream.ErrNotPullConsumer):
		conflict = " is a push consumer"
	case err != nil:
		return fmt.Errorf("look up %s: %w", name, err)
	case have.CachedInfo().Config.AckPolicy != want.AckPolicy,
		have.CachedInfo().Config.DeliverPolicy != want.DeliverPolicy:
		conflict = fmt.Sprintf(" has acknowledgement %s and delivery %s", have.CachedInfo().Config.AckPolicy,
			have.CachedInfo().Config.DeliverPolicy)
	}
	if conflict != "" {
		sentence := name + conflict + ", which cannot be changed"
		if e.lists(sentence) {
			return nil
		}
		return fmt.Errorf("%s, remove it with `nats consumer rm %s %s`: %w", sentence, stream, want.Durable,
			ErrIncompatible)
	}
	next := overlayConsumer(have.CachedInfo().Config, want)
	if e.topology.KeepExisting || reflect.DeepEqual(have.CachedInfo().Config, next) ||
		e.lists(name+" does not have the configuration that this version needs") {
		return nil
	}
	return e.update(ctx, stream, next)
}

func (e *ensurer) update(ctx context.Context, stream string, c jetstream.ConsumerConfig) error {
	if _, err := e.js.CreateOrUpdateConsumer(ctx, stream, c); err != nil {
		return fmt.Errorf("create or update consumer %s of stream %s: %w", c.Durable, stream, err)
	}
	return nil
}

// overlayConsumer is overlay for consumers.
func overlayConsumer(have, want jetstream.ConsumerConfig) jetstream.ConsumerConfig {
	next := have
	next.Description = want.Description
	next.FilterSubject, next.FilterSubjects = "", want.FilterSubjects
	next.AckWait, next.BackOff = want.AckWait, nil
	next.MaxDeliver, next.MaxAckPending = want.MaxDeliver, want.MaxAckPending
	next.HeadersOnly = false // a want without its payload reads as a tombstone
	// The server would reject the requests of Consume.
	next.MaxRequestBatch, next.MaxRequestExpires, next.MaxRequestMaxBytes = 0, 0, 0
	next.PriorityPolicy, next.PriorityGroups, next.PinnedTTL = jetstream.PriorityPolicyNone, nil, 0
	next.InactiveThreshold = 0 // the server would delete the consumer while no service runs
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
