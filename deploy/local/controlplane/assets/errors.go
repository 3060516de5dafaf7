package assets

import "errors"

var (
	// ErrMissing says that a folder lacks one of the binaries.
	ErrMissing = errors.New("control plane binary missing")
	// ErrNoToolchain says that there is no go command to build the binaries with.
	ErrNoToolchain = errors.New("no go toolchain")
	// ErrBuild says that the go command ran and failed.
	ErrBuild = errors.New("build of the control plane failed")
)
