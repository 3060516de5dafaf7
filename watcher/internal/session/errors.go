package session

import "errors"

var (
	// errReload reports that the stream of requests is not the one that was read.
	errReload = errors.New("the stream of requests was changed by another client")
	// errDisconnected reports that the connection to the broker broke. What the
	// stream holds when it is back may be older than what was acknowledged.
	errDisconnected = errors.New("the connection to NATS is gone")
)
