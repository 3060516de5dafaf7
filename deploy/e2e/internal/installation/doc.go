// Package installation tests an existing installation from outside: through the API of
// Kubernetes, and through an origin whose responses the spec controls. Its helpers fail
// the spec.
//
// It reads these environment variables:
//
//	KUBECONFIG               of an administrator
//	CURLMETHAT_E2E_ORIGIN    URL of the origin, for the fetchers: http://origin:8080
//	CURLMETHAT_E2E_CONTROL   URL of the origin's control, for this process:
//	                         http://127.0.0.1:8084, or NAMESPACE/SERVICE:PORT to
//	                         reach it through the API server
package installation
