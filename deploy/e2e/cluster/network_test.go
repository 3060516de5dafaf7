package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/reach"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/release"
)

const (
	// enforcing is how long the network plugin may take to enforce policies.
	enforcing = time.Minute
	// setup is the component that creates the streams.
	setup = "setup"
	// console is the component that serves curlctl's web console.
	console = "console"
)

// enforcesNetworks adds a spec of the allowed connections. The network plugin of kind enforces
// NetworkPolicies, so there the rest of the suite runs with them, too.
func enforcesNetworks() {
	It("reaches only what it needs where NetworkPolicies are enforced", func(ctx SpecContext) {
		n := surveyed(ctx)
		var now paths
		Eventually(ctx, func() (_ paths, err error) {
			now, err = n.reached(ctx)
			return now, err
		}).WithTimeout(enforcing).Should(Or(Equal(n.unenforced()), Equal(n.promised())))
		if now[release.Fetcher]["the API server"] == states[true] {
			Expect(os.Getenv("NETWORK_POLICIES")).NotTo(Equal("enforced"), "this cluster does not enforce NetworkPolicies")
			Skip("this cluster does not enforce NetworkPolicies")
		}
	})
}

// Two pods without an identity, one in the release's namespace and one in another namespace.
const (
	neighbour = "a pod of the namespace"
	outsider  = "a pod of another namespace"
)

// network has the sources and destinations of connections.
type network struct {
	// from has pods by their role.
	from map[string]corev1.Pod
	// to has addresses by their role.
	to map[string]target
}

// target is an address. If it belongs to a pod in from, of is that pod's role: connections of a pod
// to itself are not tried.
type target struct{ address, of string }

// surveyed collects the pods and addresses.
func surveyed(ctx context.Context) *network {
	GinkgoHelper()
	core := cluster.Client.CoreV1()
	image := registry + "origin:" + version
	beside := release.RunPod(ctx, cluster, chart.Namespace, image, map[string]string{"app": "neighbour"})
	DeferCleanup(func(ctx SpecContext) error {
		return core.Pods(beside.Namespace).Delete(ctx, beside.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})
	})
	n := &network{from: map[string]corev1.Pod{neighbour: *beside, outsider: *origin.Pod}, to: map[string]target{}}
	for _, component := range []string{release.Watcher, release.Fetcher, release.Writer, release.NATS, setup, console} {
		n.from[component] = running(ctx, component)
	}
	pod := func(to, of string, port int) {
		n.to[to] = target{net.JoinHostPort(n.from[of].Status.PodIP, strconv.Itoa(port)), of}
	}
	service := func(namespace, name string, port int) string {
		found, err := core.Services(namespace).Get(ctx, name, metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		return net.JoinHostPort(found.Spec.ClusterIP, strconv.Itoa(port))
	}
	pod("NATS", release.NATS, 4222)
	n.to["NATS by its Service"] = target{service(chart.Namespace, chart.Object(release.NATS), 4222), release.NATS}
	pod("NATS monitoring", release.NATS, 8222)
	n.to["the API server"] = target{service("default", "kubernetes", 443), ""}
	n.to["name servers"] = target{reach.DNS + service("kube-system", "kube-dns", 53), ""}
	pod("metrics of watcher", release.Watcher, 8081)
	pod("metrics of fetcher", release.Fetcher, 8082)
	pod("metrics of writer", release.Writer, 8083)
	pod("the console", console, 8090)
	pod("a private address", neighbour, 8084)
	pod("a private address that is allowed", outsider, 8080)
	return n
}

// running returns a running pod of a component. Pods of Jobs have ended.
func running(ctx context.Context, component string) corev1.Pod {
	GinkgoHelper()
	for _, pod := range chart.Pods(ctx, component) {
		if pod.Status.Phase == corev1.PodRunning {
			return pod
		}
	}
	Fail("no pod of " + component + " runs")
	return corev1.Pod{}
}

// reached tries all connections and returns their states by from and to.
func (n *network) reached(ctx context.Context) (paths, error) {
	var mu sync.Mutex
	var tries sync.WaitGroup
	var failed error
	all := paths{}
	for from, pod := range n.from {
		tries.Go(func() {
			found, err := n.reachedFrom(ctx, from, pod)
			mu.Lock()
			defer mu.Unlock()
			all[from] = found
			failed = errors.Join(failed, err)
		})
	}
	tries.Wait()
	return all, failed
}

func (n *network) reachedFrom(ctx context.Context, from string, pod corev1.Pod) (map[string]string, error) {
	var addresses []string
	for _, to := range n.to {
		if to.of != from {
			addresses = append(addresses, to.address)
		}
	}
	reached, err := release.Reach(ctx, cluster, pod, registry+"origin:"+version, addresses)
	if err != nil {
		return nil, fmt.Errorf("from %s: %w", from, err)
	}
	found := map[string]string{}
	for name, to := range n.to {
		if open, tried := reached[to.address]; tried {
			found[name] = states[open]
		}
	}
	return found, nil
}

// paths are "open" or "denied" by from and to.
type paths map[string]map[string]string

// unenforced is the result of reached without enforcement.
func (n *network) unenforced() paths {
	return n.all(func(string, string) bool { return true })
}

// promised is the result of reached with enforcement.
func (n *network) promised() paths {
	nats := []string{"NATS", "NATS by its Service", "name servers"}
	others := []string{"the API server", "name servers", "a private address", "a private address that is allowed"}
	open := map[string][]string{
		release.Watcher: append([]string{"NATS monitoring", "the API server"}, nats...),
		release.Fetcher: append([]string{"a private address that is allowed"}, nats...),
		release.Writer:  append([]string{"the API server"}, nats...),
		setup:           nats,
		console:         append([]string{"the API server"}, nats...),
		release.NATS:    nil,
		neighbour:       append([]string{"metrics of watcher", "metrics of fetcher", "metrics of writer"}, others...),
		outsider:        others,
	}
	return n.all(func(from, to string) bool { return slices.Contains(open[from], to) })
}

// all returns all paths that are tried.
func (n *network) all(open func(from, to string) bool) paths {
	all := paths{}
	for from := range n.from {
		all[from] = map[string]string{}
		for name, to := range n.to {
			if to.of != from {
				all[from][name] = states[open(from, name)]
			}
		}
	}
	return all
}

// states of a path.
var states = map[bool]string{true: "open", false: "denied"}
