package reconcile

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kv8s/curl-me-that/proto/pipeline"
)

const (
	// maxBacklog is the maximum number of undelivered messages, shared by the namespaces that have some. Even
	// a slow fetcher receives them within two seconds.
	maxBacklog = 512
	// minShare is the minimum share of a namespace.
	minShare = 16
)

// ErrBacklogFull means that a namespace has used its share of the backlog.
var ErrBacklogFull = errors.New("namespace has its share of the backlog")

// Backlog limits the undelivered messages of a namespace. The stream of requests is first in, first out, so other
// namespaces would wait behind them. It is safe for concurrent use.
type Backlog struct {
	client *pipeline.Client

	mu sync.Mutex
	// sequences of messages that were undelivered at the last Refresh or published later, by namespace.
	sequences map[string][]uint64
}

// NewBacklog returns an empty backlog.
func NewBacklog(client *pipeline.Client) *Backlog {
	return &Backlog{client: client, sequences: map[string][]uint64{}}
}

// Add counts a published message.
func (b *Backlog) Add(namespace string, sequence uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sequences[namespace] = append(b.sequences[namespace], sequence)
}

// Check returns ErrBacklogFull if a namespace has used its share. Messages count until the next Refresh.
func (b *Backlog) Check(namespace string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.sequences[namespace]) >= max(minShare, maxBacklog/max(1, len(b.sequences))) {
		return ErrBacklogFull
	}
	return nil
}

// Refresh drops delivered messages, and returns the room for further ones.
func (b *Backlog) Refresh(ctx context.Context) (room int, err error) {
	progress, err := b.client.Progress(ctx, pipeline.Requests, pipeline.FetcherConsumer)
	if err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
		return 0, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	room = maxBacklog
	for namespace, sequences := range b.sequences {
		left := slices.DeleteFunc(sequences, func(sequence uint64) bool { return sequence <= progress.Delivered })
		room -= len(left)
		if len(left) == 0 {
			delete(b.sequences, namespace)
			continue
		}
		b.sequences[namespace] = left
	}
	return room, nil
}

// Reset drops all messages, for another stream.
func (b *Backlog) Reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.sequences)
}
