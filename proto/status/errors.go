package status

import "errors"

var (
	// ErrMalformed means that a value is no status; treat it as an empty one.
	ErrMalformed = errors.New("malformed status annotation")
	// ErrMalformedFence means that a text is no fence.
	ErrMalformedFence = errors.New("malformed fence")
)
