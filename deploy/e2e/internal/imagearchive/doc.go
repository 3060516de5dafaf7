// Package imagearchive writes images of static programs as a docker archive,
// what `docker load` and `ctr images import` read, without an engine: for tests
// in clusters where there is none. The images that are shipped are made by
// deploy/docker/Dockerfile.
//
// The format is that of `docker save`: manifest.json at the top, and what it
// names (github.com/moby/docker-image-spec, v1.2, "Combined Image JSON +
// Filesystem Changeset Format").
package imagearchive
