package manifests_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats-server/v2/server"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/proto/annotation"
)

// ours matches an image of one of our programs.
var ours = regexp.MustCompile(`^ghcr\.io/kv8s/curl-me-that/([a-z]+):`)

var _ = Describe("The programs in the chart", func() {
	DescribeTable("know all their flags", func(ctx SpecContext, name string) {
		for of, pod := range podTemplates(rendered[name]) {
			container := pod.Spec.Containers[0]
			image := ours.FindStringSubmatch(container.Image)
			if image == nil {
				Expect(of).To(HavePrefix("StatefulSet/"), "%s has the image %s", of, container.Image)
				continue
			}
			program := filepath.Join(bin(), image[1])
			Expect(program).To(BeAnExistingFile(), "run `make build`")
			// Flags are parsed in order, and --help exits before any work starts.
			said, err := exec.CommandContext(ctx, program, append(container.Args, "--help")...).CombinedOutput()
			Expect(err).NotTo(HaveOccurred(), "%s: %s", of, said)
		}
	}, values(additional()...))

	It("protect the same namespaces as by default", func() {
		const flag = "--protected-namespaces="
		found := 0
		for of, pod := range podTemplates(rendered["default"]) {
			for _, arg := range pod.Spec.Containers[0].Args {
				if value, ok := strings.CutPrefix(arg, flag); ok {
					Expect(strings.Split(value, ",")).To(Equal(annotation.DefaultProtected()), of)
					found++
				}
			}
		}
		Expect(found).To(Equal(2), "watcher and writer")
	})

	DescribeTable("have enough time to terminate", func(name string) {
		for of, pod := range podTemplates(rendered[name]) {
			if strings.HasPrefix(of, "Deployment/") {
				Expect(*pod.Spec.TerminationGracePeriodSeconds).To(BeNumerically(">", 30), of)
			}
		}
	}, values(additional()...))

	DescribeTable("run only as many concurrent fetches as fit in memory", func(ctx SpecContext, concurrency, maxBody int) {
		set := fmt.Sprintf("fetcher={\"concurrency\":%d,\"maxBody\":%d}", concurrency, maxBody)
		objects := template(ctx, filepath.Join(chart, "ci", "default-values.yaml"), "--set-json", set)
		container := podTemplates(objects)["Deployment/curl-me-that-fetcher"].Spec.Containers[0]
		limit := mebibytes(container.Env, "GOMEMLIMIT") << 20
		// The fetcher checks this at startup.
		Expect(limit).To(BeNumerically(">=", int64(concurrency)*int64(maxBody)*2))
		memory := container.Resources.Limits.Memory().Value()
		Expect(memory).To(BeNumerically(">=", limit*5/4))
		Expect(container.Resources.Requests.Memory().Value()).To(BeNumerically("<=", memory))
	},
		Entry("one", 1, 1000), Entry("with the defaults", 32, 1_000_000), Entry("many", 256, 1_000_000),
		Entry("with the maximum values", 4096, 1_000_000),
	)

	DescribeTable("have exactly the permissions that they were tested with", func(name, namespace string) {
		roles := map[string][]rbacv1.PolicyRule{}
		for _, o := range rendered[name] {
			switch o.GetKind() {
			case "ClusterRole":
				roles[o.GetName()] = convert[rbacv1.ClusterRole](o).Rules
			case "Role":
				if o.GetNamespace() == namespace {
					roles[o.GetName()] = convert[rbacv1.Role](o).Rules
				}
			}
		}
		Expect(roles).To(HaveKeyWithValue("curl-me-that-writer", world.WriterRules()))
		watcher := world.WatcherRules()
		Expect(watcher).To(HaveLen(3))
		Expect(roles).To(HaveKeyWithValue("curl-me-that-watcher", watcher[:2])) // the third is for its Lease
		Expect(roles).NotTo(HaveKey("curl-me-that-fetcher"))
		keeper := world.KeeperRules()
		if name == "keeper" {
			Expect(roles).To(HaveKeyWithValue("curl-me-that-keeper", keeper[:len(keeper)-1])) // the last is for its Lease
		} else {
			Expect(roles).NotTo(HaveKey("curl-me-that-keeper"))
		}
	}, Entry("in all namespaces", "default", "curl-me-that"), Entry("with Watchers", "keeper", "curl-me-that"),
		Entry("in a listed namespace", "namespaced", "team-a"), Entry("in another one", "namespaced", "team-b"))
})

// bin returns the folder of the built programs.
func bin() string {
	if dir := os.Getenv("CURLMETHAT_BIN"); dir != "" {
		return dir
	}
	return filepath.Join("..", "..", "..", "bin")
}

// mebibytes returns the number in an environment variable such as 64MiB.
func mebibytes(env []corev1.EnvVar, name string) int64 {
	GinkgoHelper()
	for _, e := range env {
		if e.Name == name {
			return suitetest.Must(strconv.ParseInt(strings.TrimSuffix(e.Value, "MiB"), 10, 64))
		}
	}
	Fail("missing " + name)
	return 0
}

var _ = Describe("The bundled NATS", func() {
	It("has an identity for each service, and does not sync each write with one server", func(ctx SpecContext) {
		options := configured(ctx, rendered["default"], "curl-me-that-nats-0")
		Expect(options.MaxPayload).To(BeEquivalentTo(2 << 20))
		Expect(options.SyncAlways).To(BeFalse())
		Expect(options.Nkeys).To(HaveLen(8))
	})

	It("syncs each write with three servers, whose names are in the certificate", func(ctx SpecContext) {
		options := configured(ctx, rendered["ha"], "curl-me-that-nats-0")
		Expect(options.SyncAlways).To(BeTrue())
		Expect(options.Cluster.Name).To(Equal("curl-me-that-nats"))
		Expect(options.Routes).To(HaveLen(3))
		certificate := options.Cluster.TLSConfig.Certificates[0].Leaf
		for i, route := range options.Routes {
			Expect(certificate.VerifyHostname(route.Hostname())).To(Succeed())
			Expect(route.Hostname()).To(HavePrefix("curl-me-that-nats-" + string(rune('0'+i)) + "."))
		}
		for _, name := range []string{"curl-me-that-nats", "curl-me-that-nats.curl-me-that.svc"} {
			Expect(certificate.VerifyHostname(name)).To(Succeed())
		}
	})
})

// configured creates the /etc/nats of a NATS pod, with keys from the command of the Job. It returns the
// configuration of one server.
func configured(ctx context.Context, objects []object, name string) *server.Options {
	GinkgoHelper()
	dir := GinkgoT().TempDir()
	job := slices.IndexFunc(objects, func(o object) bool {
		return o.GetKind() == "Job" && strings.Contains(o.GetName(), "-identities-")
	})
	Expect(job).To(BeNumerically(">=", 0))
	args := podTemplates(objects[job : job+1])["Job/"+objects[job].GetName()].Spec.Containers[0].Args
	hosts := args[slices.IndexFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "--tls-host=") })]
	said, err := exec.CommandContext(ctx, filepath.Join(bin(), "curlctl"), "identities", "--out",
		filepath.Join(dir, "identities"), hosts).CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), "%s", said)

	here := strings.NewReplacer("/etc/nats", dir, "/data", filepath.Join(dir, "data"))
	for _, o := range objects {
		if o.GetKind() != "ConfigMap" || o.GetName() != "curl-me-that-nats" {
			continue
		}
		for file, text := range convert[corev1.ConfigMap](o).Data {
			Expect(os.WriteFile(filepath.Join(dir, file), []byte(here.Replace(text)), 0o600)).To(Succeed())
		}
	}
	GinkgoT().Setenv("SERVER_NAME", name)
	return suitetest.Must(server.ProcessConfigFile(filepath.Join(dir, "nats.conf")))
}
