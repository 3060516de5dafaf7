// Package operate is the client of operators: failures, pending timers and wants, the pause, and the
// audit.
package operate

import (
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// Client is safe for concurrent use.
type Client struct{ *pipeline.Client }

// NewClient returns a client on a JetStream context.
func NewClient(js jetstream.JetStream) *Client { return &Client{Client: pipeline.NewClient(js)} }
