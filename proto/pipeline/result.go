package pipeline

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
)

// PublishResult publishes an outcome for the writer. It sets no message id, because anybody who
// guessed one could suppress the result of another. A second result of the same trigger has no
// effect, thanks to its fence. The error wraps ErrFull if the stream is full, and ErrTooLarge if
// the result exceeds the server's max_payload.
func (c *Client) PublishResult(ctx context.Context, r *v1.Result) error {
	key := KeyOf(r.GetWant())
	subject := key.FailureSubject()
	switch r.GetOutcome().(type) {
	case *v1.Result_Content:
		subject = key.ContentSubject()
	case *v1.Result_Sync: // only the watcher may publish there
		subject = key.SyncSubject()
	default:
		// Unmodified ends a failure, so it uses the subject of failures. On the subject of bodies
		// it would replace a pending body.
	}
	m, err := newMessage(ctx, subject, r)
	if err == nil {
		_, err = c.publish(ctx, "result of "+key.String(), m, jetstream.WithExpectStream(Results))
	}
	return err
}

// DecodeResult decodes the payload of a result. Errors wrap ErrMalformed.
func DecodeResult(key Key, data []byte) (*v1.Result, error) {
	return decode(key, data, new(v1.Result), (*v1.Result).GetWant)
}

// Digest returns the SHA-256 of a body as 64 lower-case hexadecimal digits, as in results and in the status.
func Digest[B string | []byte](body B) string {
	sum := sha256.Sum256([]byte(body))
	return hex.EncodeToString(sum[:])
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
		filter := resultSubjects(key.Namespace, key.Name)
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
