// Command build-demo builds curl-me-that and at the same time provides the control plane for its demo. It shows
// the progress of both. It accepts the arguments of the demo, and has few dependencies, so that it compiles
// quickly.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"github.com/kv8s/curl-me-that/deploy/local/controlplane/assets"
	"github.com/kv8s/curl-me-that/deploy/local/internal/gobuild"
	"github.com/kv8s/curl-me-that/deploy/local/internal/progress"
)

// clusterVariable names a cluster to use instead of a control plane.
const clusterVariable = "KUBECONFIG"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "build-demo:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := pflag.NewFlagSet("build-demo", pflag.ContinueOnError)
	flags.ParseErrorsAllowlist.UnknownFlags = true // they are for the demo
	out := flags.String("out", "bin", "folder for the program")
	ldflags := flags.String("ldflags", "", "flags for the linker")
	build := flags.Bool("build", false, "build the control plane even if it is cached")
	kubeconfig := flags.String("kubeconfig", os.Getenv(clusterVariable),
		"kubeconfig of a cluster to use instead of a control plane")
	if err := flags.Parse(args); err != nil {
		return err
	}
	bin, err := filepath.Abs(*out)
	if err != nil {
		return err
	}
	program := gobuild.Programs{
		Name:     "curl-me-that",
		Dir:      ".",
		Flags:    []string{"-trimpath", "-buildvcs=false", gobuild.NoDWARF, "-ldflags", *ldflags},
		Packages: []string{"./deploy/local/cmd/curl-me-that"},
	}
	display := progress.New(os.Stderr)
	defer display.Close()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return program.Build(ctx, bin, display.Part()) })
	if *kubeconfig == "" {
		group.Go(func() error {
			_, err := assets.Find(ctx, assets.Options{Build: *build, Part: display.Part()})
			return err
		})
	}
	return group.Wait()
}
