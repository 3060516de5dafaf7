package informer

import "errors"

// errClosed means that the API server, or a proxy, closes connections before a response.
var errClosed = errors.New("connection closed before an answer came")
