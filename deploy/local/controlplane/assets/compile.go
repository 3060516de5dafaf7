package assets

import (
	"context"
	"strings"
)

// compile builds the programs that the module's tool directives name.
func compile(ctx context.Context, golang toolchain, bin string, report *progress) error {
	version, err := kubernetesVersion(ctx, golang)
	if err != nil {
		return err
	}
	flags := buildFlags(version)
	stale, err := listStale(ctx, golang, flags, version, report)
	if err != nil {
		return err
	}
	built := 0
	progress := func() {
		report.state("building %s, %s and %s %s from source: %d of %d packages", etcd, apiServer, kubectl, version, built, stale)
	}
	progress()
	count := func(line string) {
		if isPackage(line) && built < stale {
			built++
			progress()
		}
	}
	args := append([]string{"build", "-v", "-o", bin + "/"}, flags...)
	return golang.run(ctx, count, append(args, "tool")...)
}

// kubernetesVersion reads the version from the module, the one place that has it.
func kubernetesVersion(ctx context.Context, golang toolchain) (string, error) {
	var version string
	last := func(line string) { version = line }
	err := golang.run(ctx, last, "list", "-m", "-f", "{{.Version}}", "k8s.io/kubernetes")
	return version, err
}

// listStale downloads the sources and counts the packages that the build cache
// does not have, which are those that `go build -v` names as it goes.
func listStale(ctx context.Context, golang toolchain, flags []string, version string, report *progress) (int, error) {
	stale, downloads := 0, 0
	report.state("looking up the sources of Kubernetes %s", version)
	count := func(line string) {
		switch {
		case strings.HasPrefix(line, "go: downloading "):
			downloads++
			report.state("downloading the sources of Kubernetes %s: %d modules", version, downloads)
		case isPackage(line):
			stale++
		}
	}
	args := append([]string{"list", "-deps", "-f", "{{if .Stale}}{{.ImportPath}}{{end}}"}, flags...)
	err := golang.run(ctx, count, append(args, "tool")...)
	return stale, err
}
