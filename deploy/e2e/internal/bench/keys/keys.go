// Package keys publishes the wants of many keys, and what a fetch of them leaves,
// where no watcher and no fetcher is needed.
package keys

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// Publishers are how many calls Each makes at a time.
const Publishers = 32

// Connect returns a connection to a NATS without accounts, which it waits for.
func Connect(url string) (*nats.Conn, jetstream.JetStream, error) {
	nc, err := nats.Connect(url, nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1))
	if err != nil {
		return nil, nil, fmt.Errorf("connect to NATS: %w", err)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		nc.Close()
		return nil, nil, fmt.Errorf("use JetStream: %w", err)
	}
	return nc, js, nil
}

// Publisher publishes to the streams of a NATS without accounts.
type Publisher struct {
	*pipeline.Client
	JS jetstream.JetStream
	// Epoch of the stream of requests.
	Epoch int64
}

// NewPublisher connects, and makes the streams if there are none.
func NewPublisher(ctx context.Context, url string) (*Publisher, error) {
	nc, js, err := Connect(url)
	if err != nil {
		return nil, err
	}
	epoch, err := pipeline.Ensure(ctx, js, pipeline.Topology{})
	if err != nil {
		nc.Close()
		return nil, err
	}
	return &Publisher{Client: pipeline.NewClient(js), JS: js, Epoch: epoch}, nil
}

// Close closes the connection.
func (p *Publisher) Close() { p.JS.Conn().Close() }

// Want is that of the n-th key, in one of 100 namespaces.
func Want(n int, epoch int64, url string, refresh time.Duration) *v1.Want {
	return &v1.Want{
		Namespace: fmt.Sprint("namespace-", n%100), Name: fmt.Sprint("configmap-", n), Key: "mydata",
		Uid: fmt.Sprintf("12345678-1234-1234-1234-%012d", n), ResourceVersion: fmt.Sprint(n), Epoch: epoch,
		Url: url, Refresh: durationpb.New(refresh),
	}
}

// Due is what a fetch of a key that is refreshed leaves for the next one.
func Due(n int, want *v1.Want, sequence uint64, at time.Time) *v1.Due {
	return &v1.Due{
		Want: want, WantSequence: sequence, Cause: v1.Cause_CAUSE_REFRESH,
		Settled: &v1.Settled{
			Sha256: fmt.Sprintf("%064d", n), Etag: fmt.Sprintf(`"%032d"`, n), LastModified: "Sun, 22 Nov 2026 15:00:00 GMT",
		},
		FreshUntil: timestamppb.New(at),
	}
}

// Each calls publish for 0 to count-1, several at a time, until one fails.
func Each(ctx context.Context, count int, publish func(ctx context.Context, n int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	for p := range Publishers {
		group.Go(func() error {
			for n := p; n < count; n += Publishers {
				if err := publish(ctx, n); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// Refreshed publishes the want and the timer of the n-th key.
func (p *Publisher) Refreshed(ctx context.Context, n int, at time.Time) error {
	want := Want(n, p.Epoch, fmt.Sprintf("https://data.example.com/configuration/%d.json", n), 10*time.Minute)
	sequence, err := p.PublishWant(ctx, want, 0)
	if err != nil {
		return err
	}
	return p.PublishTimer(ctx, Due(n, want, sequence, at), at)
}
