// Package apply carries out what package judge plans, on a real API server.
//
// A patch is bound to the version that was judged (merge patch with
// resourceVersion and uid, RFC 7386). In the common case that version is the
// one at which the watcher saw the want, or the one that our own last patch
// led to, and the patch is the only request. When the API server answers that
// the object has changed, it is read, judged again and patched again.
package apply
