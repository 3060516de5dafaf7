package watcher

import "errors"

var (
	// errReload tells that the stream of requests is not the one that was read.
	errReload = errors.New("the stream of requests was changed by somebody else")
	// errDisconnected tells that the connection to the broker broke. What the
	// stream holds when it is back may be older than what was acknowledged.
	errDisconnected = errors.New("the connection to NATS is gone")
)
