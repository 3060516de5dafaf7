// Package world sets the stage for a spec: a separate namespace, a NATS server, a web server to
// fetch from, and the real services as processes. At the end of the spec, it stops the services and
// checks the promises about all writes.
package world
