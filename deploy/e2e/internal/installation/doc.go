// Package installation is a world around services that somebody else has
// installed, seen from outside: through the API of Kubernetes, and through an
// origin whose responses the spec controls. Its helpers fail the spec.
//
// The environment holds where it is:
//
//	KUBECONFIG               of an administrator
//	CURLMETHAT_E2E_ORIGIN    URL of the origin, for the fetchers: http://origin:8080
//	CURLMETHAT_E2E_CONTROL   URL at which the origin takes instructions, for this
//	                         process: http://127.0.0.1:8084; or NAMESPACE/SERVICE:PORT,
//	                         to be reached through the API server
package installation
