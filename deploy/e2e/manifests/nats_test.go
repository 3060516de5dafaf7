package manifests_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
)

var _ = Describe("The bundled NATS", func() {
	It("starts by its configuration with the keys that the Job makes, and knows whom they belong to", func(ctx SpecContext) {
		dir, options := configured(ctx, "default")
		Expect(options.MaxPayload).To(BeEquivalentTo(2 << 20))
		Expect(options.SyncAlways).To(BeFalse())
		Expect(options.Nkeys).To(HaveLen(8))

		options.Host, options.Port, options.HTTPPort = "127.0.0.1", server.RANDOM_PORT, server.RANDOM_PORT
		options.NoSigs, options.NoLog = true, true
		broker, err := server.NewServer(options)
		Expect(err).NotTo(HaveOccurred())
		go broker.Start()
		DeferCleanup(func() { broker.Shutdown(); broker.WaitForShutdown() })
		Expect(broker.ReadyForConnections(10 * time.Second)).To(BeTrue())

		url := strings.Replace(broker.ClientURL(), "127.0.0.1", "localhost", 1)
		_, err = nats.Connect(url, nats.RootCAs(filepath.Join(dir, "identities", "ca.crt")))
		Expect(err).To(MatchError(nats.ErrAuthorization))
		for _, service := range []string{"watcher", "fetcher", "writer", "setup", "viewer"} {
			key, err := nats.NkeyOptionFromSeed(filepath.Join(dir, "identities", service+".nk"))
			Expect(err).NotTo(HaveOccurred())
			connection, err := nats.Connect(url, key, nats.RootCAs(filepath.Join(dir, "identities", "ca.crt")))
			Expect(err).NotTo(HaveOccurred(), service)
			connection.Close()
		}
	})

	It("of three servers writes to the disk at once, and they know each other by names that are in the certificate", func(ctx SpecContext) {
		_, options := configured(ctx, "ha")
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

// configured lays out what a pod of NATS has in /etc/nats, with keys as the Job
// makes them, and returns the folder and what the server reads there.
func configured(ctx context.Context, name string) (string, *server.Options) {
	GinkgoHelper()
	dir := GinkgoT().TempDir()
	job := slices.IndexFunc(rendered[name], func(o object) bool {
		return o.GetKind() == "Job" && strings.Contains(o.GetName(), "-identities-")
	})
	Expect(job).To(BeNumerically(">=", 0))
	args := podTemplates(rendered[name][job : job+1])["Job/"+rendered[name][job].GetName()].Spec.Containers[0].Args
	hosts := args[slices.IndexFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "--tls-host=") })]
	said, err := exec.CommandContext(ctx, filepath.Join(bin(), "curlctl"), "identities", "--out", filepath.Join(dir, "identities"), hosts).CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), "%s", said)

	here := strings.NewReplacer("/etc/nats", dir, "/data", filepath.Join(dir, "data"))
	for _, o := range rendered[name] {
		if o.GetKind() != "ConfigMap" || o.GetName() != "curl-me-that-nats" {
			continue
		}
		for file, text := range convert[corev1.ConfigMap](o).Data {
			Expect(os.WriteFile(filepath.Join(dir, file), []byte(here.Replace(text)), 0o600)).To(Succeed())
		}
	}
	GinkgoT().Setenv("SERVER_NAME", "curl-me-that-nats-0")
	options, err := server.ProcessConfigFile(filepath.Join(dir, "nats.conf"))
	Expect(err).NotTo(HaveOccurred())
	return dir, options
}
