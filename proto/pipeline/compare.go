package pipeline

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/nats-io/nats.go/jetstream"
)

// Compare returns what Ensure would create or change, one sentence each, without changing anything.
// It only needs the right to look up streams and consumers.
func Compare(ctx context.Context, js jetstream.JetStream, t Topology) ([]string, error) {
	consumers := consumers()
	var differ []string
	for _, want := range t.streams() {
		stream, err := js.Stream(ctx, want.Name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			differ = append(differ, "stream "+want.Name+" does not exist")
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("look up stream %s: %w", want.Name, err)
		}
		have := stream.CachedInfo().Config
		for _, property := range fixed(have, want) {
			differ = append(differ, fmt.Sprintf("stream %s has %s, which cannot be changed", want.Name, property))
		}
		if !reflect.DeepEqual(have, overlay(have, want)) {
			differ = append(differ, "stream "+want.Name+" does not have the configuration that this version needs")
		}
		consumer, ok := consumers[want.Name]
		if !ok {
			continue
		}
		differences, err := compareConsumer(ctx, js, want.Name, consumer)
		if err != nil {
			return nil, err
		}
		differ = append(differ, differences...)
	}
	return differ, nil
}

func compareConsumer(ctx context.Context, js jetstream.JetStream, stream string,
	want jetstream.ConsumerConfig,
) ([]string, error) {
	have, err := consumerConfig(ctx, js, stream, want.Durable)
	switch {
	case errors.Is(err, jetstream.ErrConsumerNotFound):
		return []string{"consumer " + want.Durable + " of stream " + stream + " does not exist"}, nil
	case errors.Is(err, jetstream.ErrNotPullConsumer):
		return []string{"consumer " + want.Durable + " of stream " + stream + " is a push consumer, which cannot be changed"},
			nil
	case err != nil:
		return nil, err
	}
	if sameDelivery(have, want) && reflect.DeepEqual(have, overlayConsumer(have, want)) {
		return nil, nil
	}
	return []string{"consumer " + want.Durable + " of stream " + stream +
		" does not have the configuration that this version needs"}, nil
}
