package manifests_test

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/kv8s/curl-me-that/proto/suitetest"
)

var _ = Describe("The bundled NATS", func() {
	It("starts with its configuration and accepts the keys that the Job creates", func(ctx SpecContext) {
		dir, options := configured(ctx, rendered["default"], "curl-me-that-nats-0")
		Expect(options.MaxPayload).To(BeEquivalentTo(2 << 20))
		Expect(options.SyncAlways).To(BeFalse())
		Expect(options.Nkeys).To(HaveLen(8))

		url := clientURL(start(options))
		_, err := nats.Connect(url, nats.RootCAs(filepath.Join(dir, "identities", "ca.crt")))
		Expect(err).To(MatchError(nats.ErrAuthorization))
		for _, service := range []string{"watcher", "fetcher", "writer", "setup", "viewer"} {
			key := suitetest.Must(nats.NkeyOptionFromSeed(filepath.Join(dir, "identities", service+".nk")))
			connection, err := nats.Connect(url, key, nats.RootCAs(filepath.Join(dir, "identities", "ca.crt")))
			Expect(err).NotTo(HaveOccurred(), service)
			connection.Close()
		}
	})

	It("syncs to disk on each write with three servers, whose names are in the certificate", func(ctx SpecContext) {
		_, options := configured(ctx, rendered["ha"], "curl-me-that-nats-0")
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

	It("with three replicas of each stream fits on the smallest disks of three servers", func(ctx SpecContext) {
		objects := template(ctx, filepath.Join(chart, "ci", "ha-values.yaml"), "--set", "nats.bundled.storage.size=6Gi")
		dir, brokers := clustered(ctx, objects)
		args := []string{
			"setup", "--replicas", "3", "--nats-url", clientURL(brokers[0]),
			"--nats-nkey", filepath.Join(dir, "identities", "setup.nk"), "--nats-ca", filepath.Join(dir, "identities", "ca.crt"),
		}
		Eventually(ctx, func() string { // the first tries may come before there is a leader
			said, err := exec.CommandContext(ctx, filepath.Join(bin(), "curlctl"), args...).CombinedOutput()
			if err != nil {
				return string(said)
			}
			return "done"
		}).WithTimeout(2 * time.Minute).Should(Equal("done"))
	})
})

// clientURL returns a server's address with a name that is in its certificate.
func clientURL(broker *server.Server) string {
	return strings.Replace(broker.ClientURL(), "127.0.0.1", "localhost", 1)
}

// clustered runs the three servers of a rendered chart on this host, and returns them with the
// folder of their keys.
func clustered(ctx context.Context, objects []object) (dir string, brokers []*server.Server) {
	GinkgoHelper()
	dir, first := configured(ctx, objects, "curl-me-that-nats-0")
	ports, routes := make([]int, len(first.Routes)), make([]string, len(first.Routes))
	for i := range ports {
		ports[i] = freePort()
		routes[i] = "nats://localhost:" + strconv.Itoa(ports[i])
	}
	for i, port := range ports {
		GinkgoT().Setenv("SERVER_NAME", "curl-me-that-nats-"+strconv.Itoa(i))
		options := suitetest.Must(server.ProcessConfigFile(filepath.Join(dir, "nats.conf")))
		options.StoreDir = GinkgoT().TempDir()
		options.Cluster.Host, options.Cluster.Port = "127.0.0.1", port
		options.Routes = server.RoutesFromStr(strings.Join(routes, ","))
		brokers = append(brokers, start(options))
	}
	return dir, brokers
}

// freePort returns an unused port. Servers need each other's ports before they start.
func freePort() int {
	GinkgoHelper()
	l := suitetest.Must(net.Listen("tcp", "127.0.0.1:0"))
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	Expect(err).NotTo(HaveOccurred())
	return suitetest.Must(strconv.Atoi(port))
}

// start runs a server on its own ports until the end of the spec.
func start(options *server.Options) *server.Server {
	GinkgoHelper()
	options.Host, options.Port, options.HTTPPort = "127.0.0.1", server.RANDOM_PORT, server.RANDOM_PORT
	options.NoSigs, options.NoLog = true, true
	broker := suitetest.Must(server.NewServer(options))
	go broker.Start()
	DeferCleanup(func() { broker.Shutdown(); broker.WaitForShutdown() })
	Expect(broker.ReadyForConnections(time.Minute)).To(BeTrue())
	return broker
}

// configured creates a NATS pod's /etc/nats, with keys from the program that the Job runs, and
// returns the folder and the configuration of one server.
func configured(ctx context.Context, objects []object, name string) (string, *server.Options) {
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
	options := suitetest.Must(server.ProcessConfigFile(filepath.Join(dir, "nats.conf")))
	return dir, options
}
