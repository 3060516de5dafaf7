package watcher

import "errors"

// errReload tells that the stream of requests is not the one that was read.
var errReload = errors.New("the stream of requests was changed by somebody else")
