package controlplane_test

import (
	"context"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kv8s/curl-me-that/deploy/local/controlplane"
	"github.com/kv8s/curl-me-that/deploy/local/controlplane/assets"
	"github.com/kv8s/curl-me-that/proto/suitetest"
)

func TestControlPlane(t *testing.T) { suitetest.Run(t, "control plane") }

var binaries assets.Binaries

var _ = BeforeSuite(func(ctx SpecContext) {
	suitetest.ExpectNoLeaks()
	var err error
	binaries, err = assets.Find(ctx, assets.Options{Progress: GinkgoWriter})
	Expect(err).NotTo(HaveOccurred())
})

// start runs a control plane until the end of the spec or container.
func start(ctx context.Context, options controlplane.Options) *controlplane.ControlPlane {
	GinkgoHelper()
	options.Assets, options.Progress = binaries, GinkgoWriter
	plane, err := controlplane.Start(ctx, options)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(plane.Stop)
	return plane
}

func clientOf(kubeconfig string) *kubernetes.Clientset {
	GinkgoHelper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	Expect(err).NotTo(HaveOccurred())
	client, err := kubernetes.NewForConfig(config)
	Expect(err).NotTo(HaveOccurred())
	return client
}

func dirOf(plane *controlplane.ControlPlane) string { return filepath.Dir(plane.Kubeconfig()) }

// processes returns the process IDs of programs with the folder in their command line, by the name
// of the program.
func processes(dir string) map[string]int {
	GinkgoHelper()
	output, err := exec.Command("ps", "-axww", "-o", "pid=,command=").Output()
	Expect(err).NotTo(HaveOccurred())
	found := map[string]int{}
	for line := range strings.Lines(string(output)) {
		fields := strings.Fields(line)
		if len(fields) < 2 || !strings.Contains(line, dir+"/") {
			continue
		}
		pid, err := strconv.Atoi(fields[0])
		Expect(err).NotTo(HaveOccurred())
		found[fields[1][strings.LastIndex(fields[1], "/")+1:]] = pid
	}
	return found
}
