// Package netpolicy enforces the NetworkPolicies of one namespace in a cluster of one
// node, for tests where no engine is to be had: it derives rules of nftables from
// what the API server has, and loads them into the network namespace of the node,
// which has to be that of the process.
//
// What it knows is what NetworkPolicy is specified to do: podSelector, namespaceSelector and
// both, ipBlock with except, ports and ranges of them by number, and both directions;
// connections that were open before stay, and the node reaches its pods. Ports by name
// are refused.
package netpolicy
