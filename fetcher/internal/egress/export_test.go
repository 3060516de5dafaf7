package egress

import "net/netip"

// ProviderPrefixes are the ranges of clouds that the policy denies.
func ProviderPrefixes() []netip.Prefix { return providerPrefixes() }

// Deny calls deny for each permitted attempt, just before it connects.
func (g *Gate) Deny(deny func(network, address string) error) { g.dialling.deny = deny }
