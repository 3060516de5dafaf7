// Package apply carries out what package plan decides, on a real API server.
//
// A patch is bound to the version that was planned for: it is a strategic merge
// patch that carries the uid and the resourceVersion of the object. In the common
// case that version is the one at which the watcher saw the want, or the one that
// our own last patch led to, and the patch is the only request. When the API
// server answers that the object has changed, it is read, planned for again and
// patched again.
package apply
