// Package apply carries out the plans of package plan on a real API server.
//
// A strategic merge patch carries the uid and the resourceVersion of the planned object. Usually
// that version is known from the want or from our own last patch, so the patch is the only request.
// If the object has changed, it is read, planned and patched again.
package apply
