// Package world sets the stage for a spec: a namespace of its own, a NATS
// server, a web server to fetch from, and the real services as processes. When
// the spec is over, the services must end in order, and the promises about all
// that was written must have been kept.
package world
