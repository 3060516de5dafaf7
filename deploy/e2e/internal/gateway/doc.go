// Package gateway stands between a service and a real API server and makes
// their connection as bad as a test wants it: refusing, losing answers, or
// silent.
package gateway
