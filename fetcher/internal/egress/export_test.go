package egress

import "net/netip"

// ProviderPrefixes are the ranges of clouds that the policy denies.
func ProviderPrefixes() []netip.Prefix { return providerPrefixes() }
