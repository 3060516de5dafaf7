// Command release makes the files of a release, the same ones from the same commit on
// any machine with the same Go: archives of the programs for each platform, with
// what they are made of, the chart, its manifests, the manifest of the kubectl plugin,
// and the checksums of all.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"syscall"

	"github.com/spf13/pflag"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// validVersion is that of SemVer, as far as tags use it.
var validVersion = regexp.MustCompile(`^v\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$`)

func run(ctx context.Context, args []string) error {
	var r release
	var images string
	flags := pflag.NewFlagSet("release", pflag.ContinueOnError)
	flags.StringVar(&r.version, "version", "", "version, such as v1.2.3")
	flags.StringVar(&r.out, "out", "dist", "folder for the files; it must not exist")
	flags.StringSliceVar(&r.platforms, "platforms", []string{"linux/amd64", "linux/arm64", "darwin/arm64"}, "platforms to build for")
	flags.StringVar(&r.helm, "helm", "helm", "program that packages the chart")
	flags.StringVar(&r.key, "key", "", "key of gpg, by name or fingerprint, that signs the chart for `helm verify`; default: it is not signed")
	flags.StringVar(&images, "images", "", "file that `docker buildx bake --metadata-file` has written, with NATS added: chart and manifests name its digests")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if !validVersion.MatchString(r.version) {
		return fmt.Errorf("--version: %q is not a version such as v1.2.3", r.version)
	}
	if _, err := os.Stat(r.out); !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("--out: %s is there already: remove it", r.out)
	}
	if err := committed(ctx); err != nil {
		return err
	}
	var err error
	if r.time, err = commitTime(ctx); err != nil {
		return err
	}
	if r.digests, err = readDigests(images); err != nil {
		return err
	}
	return r.make(ctx)
}
