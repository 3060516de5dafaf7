package broker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// ErrNoConsumer means that a durable consumer does not exist.
var ErrNoConsumer = errors.New("not found")

// Consumer returns a durable consumer of a stream. Errors wrap ErrNoConsumer, or jetstream.ErrStreamNotFound.
func Consumer(ctx context.Context, stream jetstream.Stream, name string) (*jetstream.ConsumerInfo, error) {
	consumer, err := stream.Consumer(ctx, name)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		return nil, fmt.Errorf("consumer %s of stream %s (`curlctl setup` creates it): %w",
			name, stream.CachedInfo().Config.Name, ErrNoConsumer)
	}
	if err != nil {
		return nil, err
	}
	return consumer.CachedInfo(), nil
}

// Handled returns the sequence up to which the fetchers have handled all requests (0: there is no consumer).
func (c *Client) Handled(ctx context.Context) (uint64, error) {
	fetchers, err := c.Fetchers(ctx)
	switch {
	case errors.Is(err, ErrNoConsumer):
		return 0, nil
	case err != nil:
		return 0, err
	}
	return fetchers.AckFloor.Stream, nil
}

// Fetchers returns the consumer that the fetchers share, or an error of Consumer.
func (c *Client) Fetchers(ctx context.Context) (*jetstream.ConsumerInfo, error) {
	stream, err := c.Stream(ctx, pipeline.Requests)
	if err != nil {
		return nil, err
	}
	return Consumer(ctx, stream, pipeline.FetcherConsumer)
}

// Forever is the length of an unlimited pause, since JetStream needs an end.
const Forever = 100 * 365 * 24 * time.Hour

// Resumes returns the end of a pause (nil: it is unlimited, or there is none).
func Resumes(info *jetstream.ConsumerInfo) *time.Time {
	if until := info.Config.PauseUntil; info.Paused && until != nil && time.Until(*until) < Forever/2 {
		return until
	}
	return nil
}

// PauseFetching pauses the delivery of requests to all fetchers until a time, without loss. It needs the
// permission to publish $JS.API.CONSUMER.PAUSE.CURL_REQUESTS.fetcher.
func (c *Client) PauseFetching(ctx context.Context, until time.Time) error {
	if _, err := c.JetStream().PauseConsumer(ctx, pipeline.Requests, pipeline.FetcherConsumer, until); err != nil {
		return fmt.Errorf("pause consumer %s of stream %s: %w", pipeline.FetcherConsumer, pipeline.Requests, err)
	}
	return nil
}

// ResumeFetching ends the pause. It needs the same permission.
func (c *Client) ResumeFetching(ctx context.Context) error {
	if _, err := c.JetStream().ResumeConsumer(ctx, pipeline.Requests, pipeline.FetcherConsumer); err != nil {
		return fmt.Errorf("resume consumer %s of stream %s: %w", pipeline.FetcherConsumer, pipeline.Requests, err)
	}
	return nil
}
