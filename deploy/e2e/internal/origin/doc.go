// Package origin is the web server that ConfigMaps fetch from in tests. Each
// of its pages responds what and when the spec sets, counts the requests, and
// records every good body that it has ever given.
package origin
