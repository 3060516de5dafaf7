package cluster_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/installation"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/proto/annotation"
)

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

// rds writes the recipe of the RDS CA bundle with a URL of the origin. It returns the file and the body.
func rds(i *world.World) (file, body string) {
	GinkgoHelper()
	object := decode(fromRoot("deploy/samples/recipes/01-rds-ca.yaml"))[0]
	_, address, found := strings.Cut(object.GetAnnotations()[annotation.DefaultKey], "=")
	Expect(found).To(BeTrue())
	bundle := suitetest.Must(url.Parse(address))
	body = "certificates"
	object.SetAnnotations(map[string]string{
		annotation.DefaultKey: "ca.pem=" + i.Origin.Page(bundle.Path).Says(body).URL(),
	})
	text := suitetest.Must(object.MarshalJSON())
	file = filepath.Join(GinkgoT().TempDir(), "rds-ca.json")
	Expect(os.WriteFile(file, text, 0o600)).To(Succeed())
	return file, body
}

// deployTimeout is the time from images to data that install.md promises.
const deployTimeout = 5 * time.Minute

// These specs follow deploy/docs/install.md.
var _ = Describe("make deploy", func() {
	It("installs the chart, which fills a recipe, and make undeploy removes it",
		func(ctx SpecContext) {
			if exec.CommandContext(ctx, "docker", "image", "inspect", registry+"watcher:"+version).Run() != nil {
				Skip("there is no container engine with the images of version " + version)
			}
			if os.Getenv("IMAGE_LOAD") == "" {
				Skip("IMAGE_LOAD is not set, and no registry has images tagged by content")
			}
			variables := []string{"VERSION=" + version, "VALUES=" + deployValues()}
			shown = append(shown, manifestNamespace)
			DeferCleanup(func(ctx SpecContext) {
				run(ctx, "make", append([]string{"undeploy"}, variables...)...)
				run(ctx, "kubectl", "delete", "namespace", manifestNamespace)
			})
			since := time.Now()
			run(ctx, "make", append([]string{"deploy"}, variables...)...)
			i := installation.Open(ctx)
			object, body := rds(i)
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
	)
})

// deployValues writes a values file that lets fetchers reach the origin, which has a private address.
func deployValues() string {
	GinkgoHelper()
	values := suitetest.Must(json.Marshal(
		map[string]any{"fetcher": map[string]any{"egress": map[string]any{"allowCIDRs": origin.CIDRs}}}))
	file := filepath.Join(GinkgoT().TempDir(), "values.json")
	Expect(os.WriteFile(file, values, 0o600)).To(Succeed())
	return file
}
