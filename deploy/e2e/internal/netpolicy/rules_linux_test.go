package netpolicy_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/netpolicy"
	"github.com/kv8s/curl-me-that/proto/suitetest"
)

func TestNetpolicy(t *testing.T) { suitetest.Run(t, "NetworkPolicies by nftables") }

const (
	// dial is for how long a connection is tried that packets may be dropped of.
	dial = 500 * time.Millisecond
	// busy is how long a path that is open may seem closed on a machine that is busy.
	busy = 30 * time.Second
)

// ports at which each pod listens.
var ports = []string{"80", "81", "90"}

// node is a network namespace with a bridge, and one for each pod at it.
type node struct {
	host string
	pods []corev1.Pod
}

var here *node

var _ = BeforeSuite(func(ctx SpecContext) {
	here = &node{host: fmt.Sprintf("netpolicy-%d", os.Getpid())}
	here.run(ctx, "ip netns add "+here.host)
	DeferCleanup(func(ctx SpecContext) { here.run(ctx, "ip netns del "+here.host) })
	for _, command := range []string{"ip link set lo up", "ip link add pods0 type bridge", "ip addr add 10.77.0.1/24 dev pods0", "ip link set pods0 up", "sysctl -qw net.bridge.bridge-nf-call-iptables=1", "nft list tables"} {
		here.run(ctx, "ip netns exec "+here.host+" "+command)
	}
	here.add(ctx, "red", "a")
	here.add(ctx, "red", "b")
	here.add(ctx, "blue", "a")
	here.add(ctx, "red", "server")
})

// run runs a command that needs a privileged user; where it cannot be run, it skips the
// suite.
func (n *node) run(ctx context.Context, command string) {
	GinkgoHelper()
	words := strings.Fields(command)
	if out, err := exec.CommandContext(ctx, words[0], words[1:]...).CombinedOutput(); err != nil {
		Skip(fmt.Sprintf("there can be no node with pods here: %s: %s %s", command, err, out))
	}
}

// add adds a pod to the node, which listens.
func (n *node) add(ctx context.Context, namespace, app string) {
	GinkgoHelper()
	name := fmt.Sprintf("%s-%s-%s", n.host, namespace, app)
	address := fmt.Sprintf("10.77.0.%d", 10+len(n.pods))
	veth := fmt.Sprintf("veth%d", len(n.pods))
	n.run(ctx, "ip netns add "+name)
	DeferCleanup(func(ctx SpecContext) { n.run(ctx, "ip netns del "+name) })
	for _, command := range []string{
		"ip netns exec " + n.host + " ip link add " + veth + " type veth peer name eth0 netns " + name,
		"ip netns exec " + n.host + " ip link set " + veth + " master pods0 up",
		"ip netns exec " + name + " ip addr add " + address + "/24 dev eth0",
		"ip netns exec " + name + " ip link set eth0 up",
		"ip netns exec " + name + " ip route add default via 10.77.0.1",
	} {
		n.run(ctx, command)
	}
	n.pods = append(n.pods, corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": app}},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning, PodIPs: []corev1.PodIP{{IP: address}}},
	})
	for _, port := range ports {
		Expect(inside(name, func() error {
			listener, err := net.Listen("tcp", net.JoinHostPort(address, port))
			if err == nil {
				DeferCleanup(listener.Close)
			}
			return err
		})).To(Succeed())
	}
}

// inside calls f in a network namespace; what it opens stays there.
func inside(namespace string, f func() error) error {
	ended := make(chan error, 1)
	go func() {
		// Never unlocked: the thread, which stays there, ends with the goroutine.
		runtime.LockOSThread()
		there, err := os.Open("/run/netns/" + namespace)
		if err == nil {
			defer there.Close()
			err = unix.Setns(int(there.Fd()), unix.CLONE_NEWNET)
		}
		if err == nil {
			err = f()
		}
		ended <- err
	}()
	return <-ended
}

// open returns from where the server is reached, at which ports.
func (n *node) open() map[string]string {
	var mu sync.Mutex
	var tries sync.WaitGroup
	found := map[string]string{}
	server := n.pods[len(n.pods)-1]
	for _, from := range n.pods[:len(n.pods)-1] {
		tries.Go(func() {
			var reached []string
			for _, port := range ports {
				if inside(from.Name, func() error {
					connection, err := net.DialTimeout("tcp", net.JoinHostPort(server.Status.PodIPs[0].IP, port), dial)
					if err == nil {
						_ = connection.Close()
					}
					return err
				}) == nil {
					reached = append(reached, port)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			found[from.Namespace+"/"+from.Labels["app"]] = strings.Join(reached, " ")
		})
	}
	tries.Wait()
	return found
}

// state with policies of the namespace red, given by their specs.
func (n *node) state(specs ...string) *netpolicy.State {
	GinkgoHelper()
	s := &netpolicy.State{Pods: n.pods}
	for _, name := range []string{"red", "blue"} {
		s.Namespaces = append(s.Namespaces, corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"colour": name}}})
	}
	for _, spec := range specs {
		policy := networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "red"}}
		Expect(yaml.UnmarshalStrict([]byte(spec), &policy.Spec)).To(Succeed())
		s.Policies = append(s.Policies, policy)
	}
	return s
}

// load loads the rules of a state until the end of the spec.
func (n *node) load(ctx context.Context, s *netpolicy.State) {
	GinkgoHelper()
	replace := func(ctx context.Context, s *netpolicy.State) {
		rules, err := s.Rules()
		Expect(err).NotTo(HaveOccurred())
		Expect(inside(n.host, func() error { return netpolicy.Load(ctx, rules) })).To(Succeed())
	}
	replace(ctx, s)
	DeferCleanup(func(ctx SpecContext) { replace(ctx, n.state()) })
}

var _ = Describe("Rules", func() {
	const all = "80 81 90"
	DescribeTable("let through what NetworkPolicies allow, and nothing else", func(ctx SpecContext, a, b, other string, specs ...string) {
		Eventually(ctx, here.open).WithTimeout(busy).Should(Equal(map[string]string{"red/a": all, "red/b": all, "blue/a": all}), "without rules")
		here.load(ctx, here.state(specs...))
		Eventually(ctx, here.open).WithTimeout(busy).Should(Equal(map[string]string{"red/a": a, "red/b": b, "blue/a": other}))
	},
		Entry("where no policy selects the pods", all, all, all, `podSelector: {matchLabels: {app: none}}`),
		Entry("where all is denied", "", "", "", `podSelector: {}`),
		Entry("where all egress is denied, of the pods of the namespace", "", "", all, `{podSelector: {}, policyTypes: [Egress]}`),
		Entry("from pods of the same namespace by their labels", all, "", "", `{podSelector: {matchLabels: {app: server}}, ingress: [{from: [{podSelector: {matchLabels: {app: a}}}]}]}`),
		Entry("from pods of a namespace by its labels", "", "", all, `{podSelector: {matchLabels: {app: server}}, ingress: [{from: [{namespaceSelector: {matchLabels: {colour: blue}}}]}]}`),
		Entry("from pods by both", all, "", "", `{podSelector: {matchLabels: {app: server}}, ingress: [{from: [{namespaceSelector: {matchLabels: {colour: red}}, podSelector: {matchLabels: {app: a}}}]}]}`),
		Entry("from either", all, "", all, `{podSelector: {matchLabels: {app: server}}, ingress: [{from: [{namespaceSelector: {matchLabels: {colour: blue}}}, {podSelector: {matchLabels: {app: a}}}]}]}`),
		Entry("from a range, but for a part of it", "", all, all, `{podSelector: {matchLabels: {app: server}}, ingress: [{from: [{ipBlock: {cidr: 10.77.0.0/24, except: [10.77.0.10/32, 10.77.0.128/25]}}]}]}`),
		Entry("from all, at some ports", "80 90", "80 90", "80 90", `{podSelector: {matchLabels: {app: server}}, ingress: [{ports: [{port: 80}, {port: 90, protocol: TCP}]}]}`),
		Entry("at a range of ports", "80 81", "80 81", "80 81", `{podSelector: {matchLabels: {app: server}}, ingress: [{ports: [{port: 80, endPort: 89}]}]}`),
		Entry("at no port of another protocol", "", "", "", `{podSelector: {matchLabels: {app: server}}, ingress: [{ports: [{port: 80, protocol: UDP}]}]}`),
		Entry("to pods by their labels, and to others not", all, "", all,
			`{podSelector: {matchLabels: {app: a}}, egress: [{to: [{podSelector: {matchLabels: {app: server}}}]}]}`,
			`{podSelector: {matchLabels: {app: b}}, policyTypes: [Egress], egress: [{to: [{podSelector: {matchLabels: {app: a}}}]}]}`),
		Entry("to a range at a port", "81", all, all, `{podSelector: {matchLabels: {app: a}}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: 0.0.0.0/0, except: [10.77.0.128/25]}}], ports: [{port: 81}]}]}`),
		Entry("what one of two policies allows", "80 81", "81", "81",
			`{podSelector: {matchLabels: {app: server}}, ingress: [{from: [{podSelector: {matchLabels: {app: a}}}], ports: [{port: 80}]}]}`,
			`{podSelector: {}, policyTypes: [Ingress], ingress: [{ports: [{port: 81}]}]}`),
		Entry("what both ends allow", "80", all, all,
			`{podSelector: {matchLabels: {app: server}}, ingress: [{}]}`,
			`{podSelector: {matchLabels: {app: a}}, policyTypes: [Egress], egress: [{ports: [{port: 80}]}]}`),
	)

	It("leave connections alone that were open before", func(ctx SpecContext) {
		var connection net.Conn
		server := here.pods[len(here.pods)-1].Status.PodIPs[0].IP
		Eventually(ctx, func() error {
			return inside(here.pods[0].Name, func() (err error) {
				connection, err = net.DialTimeout("tcp", net.JoinHostPort(server, "80"), dial)
				return err
			})
		}).WithTimeout(busy).Should(Succeed())
		DeferCleanup(connection.Close)
		here.load(ctx, here.state(`podSelector: {}`))
		Eventually(ctx, here.open).WithTimeout(busy).Should(HaveKeyWithValue("red/a", ""))
		_, err := connection.Write([]byte("still there"))
		Expect(err).NotTo(HaveOccurred())
		Eventually(ctx, func() error { return unacknowledged(connection) }).WithTimeout(busy).Should(Succeed())
	})

	It("makes no rules of ports by name", func() {
		_, err := here.state(`{podSelector: {}, ingress: [{ports: [{port: metrics}]}]}`).Rules()
		Expect(err).To(MatchError("port metrics: ports by name are not derived"))
	})
})

// unacknowledged returns an error while the other end has not acknowledged all that was
// sent.
func unacknowledged(connection net.Conn) error {
	raw, err := connection.(*net.TCPConn).SyscallConn()
	if err != nil {
		return err
	}
	var info *unix.TCPInfo
	if controlErr := raw.Control(func(fd uintptr) { info, err = unix.GetsockoptTCPInfo(int(fd), unix.SOL_TCP, unix.TCP_INFO) }); controlErr != nil {
		return controlErr
	}
	if err == nil && info.Unacked > 0 {
		err = fmt.Errorf("%d segments are not acknowledged", info.Unacked)
	}
	return err
}
