// Package origin is the web server that ConfigMaps fetch from in tests. Each
// of its pages can be told what to answer and when, counts who asks, and
// remembers every good body that it has ever given.
package origin
