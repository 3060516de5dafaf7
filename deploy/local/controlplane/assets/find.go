package assets

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Find returns the binaries of the folder that KUBEBUILDER_ASSETS names, or
// those of the user's cache, which it builds first when they are not there yet:
// once per version, about four minutes on two cores. What it does and how far it
// is goes to progress; nil keeps it silent.
func Find(ctx context.Context, progress io.Writer) (Binaries, error) {
	if dir := os.Getenv(EnvDir); dir != "" {
		found, err := In(dir)
		if err != nil {
			return Binaries{}, fmt.Errorf(
				"%w; point %s at a folder with %s, %s and %s, or unset it to have them built",
				err, EnvDir, etcd, apiServer, kubectl)
		}
		return found, nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return Binaries{}, fmt.Errorf("find a cache folder for the control plane: %w; set HOME or %s", err, EnvDir)
	}
	builder := Builder{Dir: filepath.Join(cache, "curl-me-that", "control-plane"), Progress: progress}
	return builder.Build(ctx)
}
