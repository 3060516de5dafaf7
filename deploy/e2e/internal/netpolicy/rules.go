package netpolicy

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// table is the name of the table of nftables that has all rules.
const table = "inet curlmethat_networkpolicy"

// everything that is removed and made anew in one transaction.
const ruleset = `table %[1]s
delete table %[1]s
table %[1]s {
%[2]s	chain pods {
		ct state established,related accept
%[3]s	}
	chain forward {
		type filter hook forward priority 10; policy accept;
		jump pods
	}
	chain input {
		type filter hook input priority 10; policy accept;
		jump pods
	}
}
`

// State is what rules are derived from.
type State struct {
	Policies   []networkingv1.NetworkPolicy
	Pods       []corev1.Pod
	Namespaces []corev1.Namespace
}

// direction in which a pod's traffic goes.
type direction struct {
	policyType networkingv1.PolicyType
	// own is the field of a packet with the address of the pod, peer that with
	// the address at the other end.
	own, peer string
}

// rule is of either direction.
type rule struct {
	peers []networkingv1.NetworkPolicyPeer
	ports []networkingv1.NetworkPolicyPort
}

// Rules returns the file for nft that replaces all earlier rules by those of the state.
func (s *State) Rules() (string, error) {
	var chains, jumps strings.Builder
	for _, d := range []direction{{networkingv1.PolicyTypeEgress, "saddr", "daddr"}, {networkingv1.PolicyTypeIngress, "daddr", "saddr"}} {
		for i := range s.Pods {
			pod := &s.Pods[i]
			addresses := addressesOf(pod)
			rules, isolated, err := s.rulesFor(pod, d.policyType)
			if err != nil {
				return "", err
			}
			if !isolated || len(addresses) == 0 {
				continue
			}
			chain := fmt.Sprintf("%s_%d", strings.ToLower(string(d.policyType)), i)
			lines, err := s.allowed(pod.Namespace, d.peer, rules)
			if err != nil {
				return "", err
			}
			fmt.Fprintf(&chains, "\tchain %s { # %s/%s\n%s\t\tdrop\n\t}\n", chain, pod.Namespace, pod.Name, lines)
			for _, address := range addresses {
				fmt.Fprintf(&jumps, "\t\t%s %s %s jump %s\n", family(address), d.own, address, chain)
			}
		}
	}
	return fmt.Sprintf(ruleset, table, chains.String(), jumps.String()), nil
}

// rulesFor returns what the policies that select a pod allow in one direction, and
// whether there are any such policies: without, everything is allowed.
func (s *State) rulesFor(pod *corev1.Pod, policyType networkingv1.PolicyType) (rules []rule, isolated bool, err error) {
	for i := range s.Policies {
		p := &s.Policies[i]
		selected, err := matches(&p.Spec.PodSelector, pod.Labels)
		if err != nil {
			return nil, false, fmt.Errorf("NetworkPolicy %s: podSelector: %w", p.Name, err)
		}
		if !selected || p.Namespace != pod.Namespace || !slices.Contains(policyTypes(p), policyType) {
			continue
		}
		isolated = true
		if policyType == networkingv1.PolicyTypeEgress {
			for _, r := range p.Spec.Egress {
				rules = append(rules, rule{r.To, r.Ports})
			}
			continue
		}
		for _, r := range p.Spec.Ingress {
			rules = append(rules, rule{r.From, r.Ports})
		}
	}
	return rules, isolated, nil
}

// policyTypes of a policy, by the rule of the API where it names none.
func policyTypes(p *networkingv1.NetworkPolicy) []networkingv1.PolicyType {
	switch {
	case len(p.Spec.PolicyTypes) > 0:
		return p.Spec.PolicyTypes
	case len(p.Spec.Egress) > 0:
		return []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}
	}
	return []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
}

// allowed returns the lines of a chain by which packets to or from peers return from it.
func (s *State) allowed(namespace, field string, rules []rule) (string, error) {
	var lines strings.Builder
	for _, r := range rules {
		ports, err := portMatches(r.ports)
		if err != nil {
			return "", err
		}
		peers, err := s.peerMatches(namespace, field, r.peers)
		if err != nil {
			return "", err
		}
		for _, peer := range peers {
			for _, port := range ports {
				fmt.Fprintf(&lines, "\t\t%s return\n", strings.TrimSpace(peer+" "+port))
			}
		}
	}
	return lines.String(), nil
}

// portMatches returns an expression for each port; one that matches all for none.
func portMatches(ports []networkingv1.NetworkPolicyPort) ([]string, error) {
	if len(ports) == 0 {
		return []string{""}, nil
	}
	matches := make([]string, 0, len(ports))
	for _, p := range ports {
		protocol := corev1.ProtocolTCP
		if p.Protocol != nil {
			protocol = *p.Protocol
		}
		match := "meta l4proto " + strings.ToLower(string(protocol))
		switch {
		case p.Port == nil:
		case p.Port.IntValue() == 0:
			return nil, fmt.Errorf("port %s: ports by name are not derived", p.Port)
		case p.EndPort != nil:
			match += fmt.Sprintf(" th dport %d-%d", p.Port.IntValue(), *p.EndPort)
		default:
			match += fmt.Sprintf(" th dport %d", p.Port.IntValue())
		}
		matches = append(matches, match)
	}
	return matches, nil
}

// peerMatches returns an expression for each peer; one that matches all for none.
func (s *State) peerMatches(namespace, field string, peers []networkingv1.NetworkPolicyPeer) ([]string, error) {
	if len(peers) == 0 {
		return []string{""}, nil
	}
	var matches []string
	for _, peer := range peers {
		if peer.IPBlock != nil {
			block, err := blockMatch(field, peer.IPBlock)
			if err != nil {
				return nil, err
			}
			matches = append(matches, block)
			continue
		}
		addresses, err := s.selected(namespace, peer)
		if err != nil {
			return nil, err
		}
		for _, address := range addresses {
			matches = append(matches, fmt.Sprintf("%s %s %s", family(address), field, address))
		}
	}
	return matches, nil
}

func blockMatch(field string, block *networkingv1.IPBlock) (string, error) {
	cidr, err := netip.ParsePrefix(block.CIDR)
	if err != nil {
		return "", fmt.Errorf("ipBlock: %w", err)
	}
	match := fmt.Sprintf("%s %s %s", family(cidr.Addr()), field, cidr)
	if len(block.Except) > 0 {
		match += fmt.Sprintf(" %s %s != { %s }", family(cidr.Addr()), field, strings.Join(block.Except, ", "))
	}
	return match, nil
}

// selected returns the addresses of the pods that a peer of a policy selects.
func (s *State) selected(namespace string, peer networkingv1.NetworkPolicyPeer) ([]netip.Addr, error) {
	if peer.PodSelector == nil && peer.NamespaceSelector == nil {
		return nil, errors.New("a peer has neither an ipBlock nor a selector")
	}
	in := map[string]bool{namespace: peer.NamespaceSelector == nil}
	for i := range s.Namespaces {
		if peer.NamespaceSelector == nil {
			break
		}
		n := &s.Namespaces[i]
		matched, err := matches(peer.NamespaceSelector, n.Labels)
		if err != nil {
			return nil, fmt.Errorf("namespaceSelector: %w", err)
		}
		in[n.Name] = matched
	}
	var addresses []netip.Addr
	for i := range s.Pods {
		pod := &s.Pods[i]
		matched := peer.PodSelector == nil
		if !matched {
			var err error
			if matched, err = matches(peer.PodSelector, pod.Labels); err != nil {
				return nil, fmt.Errorf("podSelector: %w", err)
			}
		}
		if matched && in[pod.Namespace] {
			addresses = append(addresses, addressesOf(pod)...)
		}
	}
	return addresses, nil
}

func matches(selector *metav1.LabelSelector, of map[string]string) (bool, error) {
	s, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return false, err
	}
	return s.Matches(labels.Set(of)), nil
}

// addressesOf a pod. Those of the node's network have the node's, to which no policy
// applies, and those that have ended have none.
func addressesOf(pod *corev1.Pod) []netip.Addr {
	if pod.Spec.HostNetwork || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return nil
	}
	var addresses []netip.Addr
	for _, ip := range pod.Status.PodIPs {
		if address, err := netip.ParseAddr(ip.IP); err == nil {
			addresses = append(addresses, address)
		}
	}
	return addresses
}

// family is the word of nft for the kind of an address.
func family(address netip.Addr) string {
	if address.Is4() {
		return "ip"
	}
	return "ip6"
}
