// Package imagearchive writes images of static programs as an archive for `docker load`
// and `ctr images import`. It needs no container engine, for tests where there is none.
// deploy/docker/Dockerfile makes the released images. The format is that of `docker save`
// (github.com/moby/docker-image-spec, v1.2, "Combined Image JSON + Filesystem Changeset
// Format").
package imagearchive
