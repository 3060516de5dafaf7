package pipeline

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/nats-io/nats.go/jetstream"
)

// MaxLatest is the maximum number of subjects in one request for last messages.
const MaxLatest = 1024

// requestShare is the reciprocal of the share of max_payload that one request may use.
const requestShare = 4

// Latest returns the last message of each of the given subjects of Requests, which must have no
// wildcards, by batched direct gets (ADR-31). It publishes only to
// $JS.API.DIRECT.GET.CURL_REQUESTS.
func (c *Client) Latest(ctx context.Context, subjects []string) (map[string]Message, error) {
	found := make(map[string]Message, len(subjects))
	if len(subjects) == 0 {
		return found, nil
	}
	b, err := c.openBatches(ctx, Requests)
	if err == nil {
		defer b.close()
	}
	maxBytes := int(c.js.Conn().MaxPayload()) / requestShare
	for rest := subjects; err == nil && len(rest) > 0; {
		n, bytes := 0, 0
		for n < min(len(rest), MaxLatest) && (n == 0 || bytes+len(rest[n]) < maxBytes) {
			bytes += len(rest[n]) + len(`"",`)
			n++
		}
		err = b.latest(ctx, rest[:n], found)
		rest = rest[n:]
	}
	if err != nil {
		return nil, fmt.Errorf("read the last of %d subjects: %w", len(subjects), err)
	}
	return found, nil
}

// latest adds the last message of each subject to found. If the server truncates its response, it
// asks for the rest.
func (b *batches) latest(ctx context.Context, subjects []string, found map[string]Message) error {
	for more := true; more; {
		got := map[string]Message{}
		var err error
		request := map[string]any{"multi_last": subjects, "batch": len(subjects), "max_bytes": scanBatchBytes}
		more, err = b.read(ctx, request, func(m Message) bool {
			got[m.Subject] = m
			return true
		})
		switch {
		case err != nil:
			return err
		case more && len(got) == 0:
			return errors.New("the response was truncated before its first message")
		case more:
			subjects = slices.DeleteFunc(slices.Clone(subjects), func(s string) bool { _, ok := got[s]; return ok })
		}
		maps.Copy(found, got)
	}
	return nil
}

// QueuedResults returns the given keys that have a pending result. It lists subjects per ConfigMap,
// because a list of all subjects could exceed the server's pending limit for a connection. It
// publishes only to $JS.API.STREAM.INFO.CURL_RESULTS.
func (c *Client) QueuedResults(ctx context.Context, keys []Key) (map[Key]bool, error) {
	queued := map[Key]bool{}
	if len(keys) == 0 {
		return queued, nil
	}
	stream, err := c.js.Stream(ctx, Results)
	if err != nil {
		return nil, fmt.Errorf("look up stream %s: %w", Results, err)
	}
	listed := map[string]bool{}
	for _, key := range keys {
		filter := resultPrefix + Kind("*.").Subjects(key.Namespace, key.Name)
		if listed[filter] || stream.CachedInfo().State.Msgs == 0 {
			continue
		}
		listed[filter] = true
		info, err := stream.Info(ctx, jetstream.WithSubjectFilter(filter))
		if err != nil {
			return nil, fmt.Errorf("list the results of %s/%s: %w", key.Namespace, key.Name, err)
		}
		for subject := range info.State.Subjects {
			if _, k, err := ParseSubject(subject); err == nil {
				queued[k] = true
			}
		}
	}
	return queued, nil
}
