package assets

import "errors"

// ErrMissing is that a folder lacks one of the binaries.
var ErrMissing = errors.New("control plane binary missing")
