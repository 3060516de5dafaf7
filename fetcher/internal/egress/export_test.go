package egress

import "net/netip"

// ProviderPrefixes are those of clouds that the policy closes.
func ProviderPrefixes() []netip.Prefix { return providerPrefixes() }
