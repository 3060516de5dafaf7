// Package operate has what operators of the pipeline need, and no service: the
// dead letters and their replay, the pending timers and wants, the record of
// what was done.
package operate

import (
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// Client reads and changes what the services leave to operators. It is safe for
// concurrent use.
type Client struct{ *pipeline.Client }

// NewClient returns a client on a JetStream context.
func NewClient(js jetstream.JetStream) *Client { return &Client{Client: pipeline.NewClient(js)} }
