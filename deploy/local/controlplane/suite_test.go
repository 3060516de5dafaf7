package controlplane_test

import (
	"context"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kv8s/curl-me-that/deploy/local/controlplane"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
)

func TestControlPlane(t *testing.T) { suitetest.Run(t, "control plane") }

var binaries controlplane.Programs

var _ = BeforeSuite(func(ctx SpecContext) {
	suitetest.ExpectNoLeaks()
	binaries = suitetest.Must(controlplane.FindPrograms(ctx, controlplane.ProgramOptions{Progress: GinkgoWriter}))
})

// start runs a control plane until the end of the spec or container.
func start(ctx context.Context, options controlplane.Options) *controlplane.ControlPlane {
	GinkgoHelper()
	options.Assets, options.Progress = binaries, GinkgoWriter
	plane := suitetest.Must(controlplane.Start(ctx, options))
	DeferCleanup(plane.Stop)
	return plane
}

func clientOf(kubeconfig string) *kubernetes.Clientset {
	GinkgoHelper()
	config := suitetest.Must(clientcmd.BuildConfigFromFlags("", kubeconfig))
	return suitetest.Must(kubernetes.NewForConfig(config))
}

func dirOf(plane *controlplane.ControlPlane) string { return filepath.Dir(plane.Kubeconfig()) }

// processes returns the process IDs by program name of all processes whose command line contains the folder.
func processes(dir string) map[string]int {
	GinkgoHelper()
	output := suitetest.Must(exec.Command("ps", "-axww", "-o", "pid=,command=").Output())
	found := map[string]int{}
	for line := range strings.Lines(string(output)) {
		fields := strings.Fields(line)
		if len(fields) < 2 || !strings.Contains(line, dir+"/") {
			continue
		}
		pid := suitetest.Must(strconv.Atoi(fields[0]))
		found[fields[1][strings.LastIndex(fields[1], "/")+1:]] = pid
	}
	return found
}
