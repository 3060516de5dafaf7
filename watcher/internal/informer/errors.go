package informer

import "errors"

// errClosed reports that the API server, or what stands before it, closes
// connections before a response.
var errClosed = errors.New("connection closed before an answer came")
