// Package tracing makes the spans of the services with OpenTelemetry: one for
// each message that is published, fetched or applied.
//
// Trace context travels in the headers of NATS messages (package pipeline). The
// environment variables OTEL_* decide whether, where to and how much; without an
// endpoint nothing is made, written or allocated. Nothing here is global: each
// service is handed its Tracer.
//
// No span holds a query string, userinfo, an IP address or anything that a
// server sent.
package tracing
