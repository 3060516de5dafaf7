package status

import "errors"

var (
	// ErrMalformed means that a value is not a status; treat it as empty.
	ErrMalformed = errors.New("malformed status annotation")
	// ErrMalformedFence means that a text is not a fence.
	ErrMalformedFence = errors.New("malformed fence")
)
