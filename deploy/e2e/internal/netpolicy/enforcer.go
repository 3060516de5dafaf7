package netpolicy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

const (
	// interval between two looks at what there is; a pod that starts is without rules for that long.
	interval = 100 * time.Millisecond
	// removeTimeout bounds the removal of the rules.
	removeTimeout = 10 * time.Second
	// bridged is whether packets that stay on a bridge pass nftables.
	bridged = "/proc/sys/net/bridge/bridge-nf-call-iptables"
)

// Enforcer has the rules of one namespace loaded.
type Enforcer struct {
	// Client of an administrator.
	Client kubernetes.Interface
	// Namespace whose policies are enforced.
	Namespace string

	loaded string
}

// Unavailable returns why rules cannot be enforced by this process, in a sentence;
// nil: they can.
func Unavailable(ctx context.Context, client kubernetes.Interface) error {
	if out, err := exec.CommandContext(ctx, "nft", "list", "tables").CombinedOutput(); err != nil {
		return fmt.Errorf("nft, which would enforce them, does not work here: %w %s", err, bytes.TrimSpace(out))
	}
	if passes, err := os.ReadFile(bridged); err == nil && strings.TrimSpace(string(passes)) != "1" {
		return fmt.Errorf("packets between pods do not pass nftables: %s is not 1", bridged)
	}
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		return fmt.Errorf("list own addresses: %w", err)
	}
	if len(nodes.Items) != 1 || !isOneOf(own, nodes.Items[0].Status.Addresses) {
		return errors.New("this process is not in the network of a node that is alone")
	}
	return nil
}

func isOneOf(own []net.Addr, node []corev1.NodeAddress) bool {
	for _, n := range node {
		for _, o := range own {
			if ip, is := o.(*net.IPNet); is && ip.IP.String() == n.Address {
				return true
			}
		}
	}
	return false
}

// Sync loads the rules for what the cluster has now.
func (e *Enforcer) Sync(ctx context.Context) error {
	policies, err := e.Client.NetworkingV1().NetworkPolicies(e.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list NetworkPolicies: %w", err)
	}
	pods, err := e.Client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	namespaces, err := e.Client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list namespaces: %w", err)
	}
	state := State{Policies: policies.Items, Pods: pods.Items, Namespaces: namespaces.Items}
	rules, err := state.Rules()
	if err != nil || rules == e.loaded {
		return err
	}
	if err := load(ctx, rules); err != nil {
		return err
	}
	e.loaded = rules
	return nil
}

// Run goes on loading rules until ctx is done, and removes them. It returns the first
// error, at which it ends.
func (e *Enforcer) Run(ctx context.Context) (err error) {
	defer func() {
		short, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
		defer cancel()
		err = errors.Join(err, load(short, "table "+table+"\ndelete table "+table+"\n"))
	}()
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		if err := e.Sync(ctx); err != nil && ctx.Err() == nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func load(ctx context.Context, rules string) error {
	cmd := exec.CommandContext(ctx, "nft", "-f", "-")
	cmd.Stdin = strings.NewReader(rules)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("nft: %w: %s in\n%s", err, bytes.TrimSpace(out), rules)
	}
	return nil
}
