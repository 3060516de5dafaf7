// Package manifest does with a file of manifests what kubectl apply and kubectl
// delete do.
package manifest
