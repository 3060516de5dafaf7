package cluster_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	ggcr "github.com/google/go-containerregistry/pkg/registry"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/installation"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/proto/annotation"
)

// deployTimeout is the time from images to data that install.md promises.
const deployTimeout = 5 * time.Minute

// These specs follow deploy/docs/install.md.
var _ = Describe("make deploy", func() {
	DescribeTable("installs the chart, which fills a recipe, and make undeploy removes it,",
		func(ctx SpecContext, way func(context.Context) []string) {
			if exec.CommandContext(ctx, "docker", "image", "inspect", registry+"watcher:"+version).Run() != nil {
				Skip("there is no container engine with the images of version " + version)
			}
			variables := append(way(ctx), "VERSION="+version, "VALUES="+deployValues())
			shown = append(shown, manifestNamespace)
			DeferCleanup(func(ctx SpecContext) {
				run(ctx, "make", append([]string{"undeploy"}, variables...)...)
				run(ctx, "kubectl", "delete", "namespace", manifestNamespace)
			})
			since := time.Now()
			run(ctx, "make", append([]string{"deploy"}, variables...)...)
			i := installation.Open(ctx)
			object, body := rds(ctx, i)
			applied := &corev1.ConfigMap{}
			Expect(json.Unmarshal(run(ctx, "kubectl", "apply", "--namespace", i.Namespace, "--filename", object,
				"--output=json"),
				applied)).To(Succeed())
			i.History.BySpec(applied)
			run(ctx, "kubectl", "wait", "--namespace", i.Namespace, "configmap/rds-ca", `--for=jsonpath={.data.ca\.pem}=`+body,
				"--timeout=2m")
			took := time.Since(since)
			AddReportEntry("time", fmt.Sprintf("from make deploy to data: %s", took.Round(time.Second)))
			Expect(took).To(BeNumerically("<", deployTimeout))
		},
		Entry("with images that are on the nodes",
			func(context.Context) []string { return []string{"IMAGE_LOAD=cat >/dev/null"} }),
		Entry("with images from a registry", func(ctx context.Context) []string {
			at := "REGISTRY=" + startRegistry(ctx) + "/me"
			run(ctx, "make", "images", at, "VERSION="+version)
			run(ctx, "make", "push", at, "VERSION="+version)
			return []string{at}
		}),
	)
})

// run runs a command at the root of the repository with the kubeconfig of the cluster, and returns its output.
func run(ctx context.Context, name string, args ...string) []byte {
	GinkgoHelper()
	limited, cancel := context.WithTimeout(ctx, deployTimeout)
	defer cancel()
	cmd := exec.CommandContext(limited, name, args...)
	cmd.Dir = fromRoot(".")
	cmd.Env = append(os.Environ(), "KUBECONFIG="+cluster.Kubeconfig)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = io.MultiWriter(&out, GinkgoWriter), GinkgoWriter
	Expect(cmd.Run()).To(Succeed(), "%s %s", name, strings.Join(args, " "))
	return out.Bytes()
}

// deployValues writes a values file that lets fetchers reach the origin, which has a private address.
func deployValues() string {
	GinkgoHelper()
	values := suitetest.Must(json.Marshal(
		map[string]any{"fetcher": map[string]any{"egress": map[string]any{"allowCIDRs": origin.CIDRs}}}))
	file := filepath.Join(GinkgoT().TempDir(), "values.json")
	Expect(os.WriteFile(file, values, 0o600)).To(Succeed())
	return file
}

// rds writes the recipe of the RDS CA bundle with a URL of the origin. It returns the file and the body.
func rds(ctx context.Context, i *installation.Installation) (file, body string) {
	GinkgoHelper()
	object := decode(fromRoot("deploy/samples/recipes/01-rds-ca.yaml"))[0]
	_, address, found := strings.Cut(object.GetAnnotations()[annotation.DefaultKey], "=")
	Expect(found).To(BeTrue())
	bundle := suitetest.Must(url.Parse(address))
	body = "certificates"
	object.SetAnnotations(map[string]string{
		annotation.DefaultKey: "ca.pem=" + i.Page(bundle.Path).Says(ctx, body).URL(),
	})
	text := suitetest.Must(object.MarshalJSON())
	file = filepath.Join(GinkgoT().TempDir(), "rds-ca.json")
	Expect(os.WriteFile(file, text, 0o600)).To(Succeed())
	return file, body
}

// startRegistry serves a registry on loopback and returns its address. It listens in two network namespaces,
// because the container engine may run in the machine's, while the suite runs in the cluster's.
func startRegistry(ctx context.Context) string {
	GinkgoHelper()
	var config net.ListenConfig
	here := suitetest.Must(config.Listen(ctx, "tcp", "127.0.0.1:0"))
	server := &http.Server{
		Handler:           ggcr.New(ggcr.Logger(log.New(io.Discard, "", 0))),
		ReadHeaderTimeout: time.Minute,
	}
	DeferCleanup(server.Close)
	go server.Serve(here) //nolint:errcheck // it ends with the spec
	if there := listenOutside(ctx, here.Addr().String()); there != nil {
		go server.Serve(there) //nolint:errcheck // it ends with the spec
	}
	return here.Addr().String()
}

// listenOutside listens at an address in the network namespace of the first ancestor of this process that uses
// another one: the shell that entered the namespace of the cluster. Without one, it returns nil.
func listenOutside(ctx context.Context, address string) net.Listener {
	outside := ancestorSpace()
	if outside == "" {
		return nil
	}
	listening := make(chan net.Listener)
	go func() {
		defer close(listening)
		// The thread is not unlocked, so it ends with the goroutine.
		runtime.LockOSThread()
		space, err := os.Open(outside)
		if err != nil {
			return
		}
		defer space.Close()
		if unix.Setns(int(space.Fd()), unix.CLONE_NEWNET) != nil {
			return
		}
		var config net.ListenConfig
		if l, err := config.Listen(ctx, "tcp", address); err == nil {
			listening <- l
		}
	}()
	return <-listening
}

// ancestorSpace returns the path of that network namespace, or "".
func ancestorSpace() string {
	ours, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		return ""
	}
	for pid := os.Getppid(); pid > 0; {
		path := fmt.Sprintf("/proc/%d/ns/net", pid)
		if theirs, err := os.Readlink(path); err == nil && theirs != ours {
			return path
		}
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			return ""
		}
		_, rest, _ := strings.Cut(string(status), "\nPPid:")
		if _, err := fmt.Sscan(rest, &pid); err != nil {
			return ""
		}
	}
	return ""
}
