// Package identity makes the NKeys by which NATS knows the services and the
// operators, and the certificate by which they know NATS. What exists is kept:
// it may be called at any time, and several times at once.
package identity
