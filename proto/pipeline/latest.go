package pipeline

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// MaxLatest is how many subjects Latest takes: the server answers a request for
// more with an error.
const MaxLatest = 1024

// Latest returns the last message of each of the given subjects of Requests that
// has one, without wildcards, by one batched direct get (ADR-31). It publishes
// to $JS.API.DIRECT.GET.CURL_REQUESTS only.
func (c *Client) Latest(ctx context.Context, subjects []string) (map[string]Message, error) {
	fail := func(err error) error { return fmt.Errorf("read the last of %d subjects: %w", len(subjects), err) }
	found := make(map[string]Message, len(subjects))
	if len(subjects) == 0 {
		return found, nil
	}
	b, err := c.openBatches(ctx, Requests)
	if err != nil {
		return nil, fail(err)
	}
	defer b.close()
	request := map[string]any{"multi_last": subjects, "batch": len(subjects), "max_bytes": scanBatchBytes}
	more, err := b.read(ctx, request, func(m Message) bool {
		found[m.Subject] = m
		return true
	})
	switch {
	case err != nil:
		return nil, fail(err)
	case more:
		return nil, fail(errors.New("the answer was cut"))
	}
	return found, nil
}

// QueuedResults calls each with every key that has a result which waits for the
// writer. It publishes to $JS.API.STREAM.INFO.CURL_RESULTS only.
func (c *Client) QueuedResults(ctx context.Context, each func(Key)) error {
	stream, err := c.js.Stream(ctx, Results)
	if err != nil {
		return fmt.Errorf("look up stream %s: %w", Results, err)
	}
	if stream.CachedInfo().State.Msgs == 0 {
		return nil
	}
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter(">"))
	if err != nil {
		return fmt.Errorf("list the subjects of stream %s: %w", Results, err)
	}
	for subject := range info.State.Subjects {
		if _, key, err := ParseSubject(subject); err == nil {
			each(key)
		}
	}
	return nil
}
