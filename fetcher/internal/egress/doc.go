// Package egress decides which addresses may be reached.
//
// A tenant chooses the URL and controls the DNS answers, so the decision is made at the dial: every connection attempt,
// for every redirect and every address of a name, is checked once its address is known, just before the first packet.
// Earlier checks of the text save work and give better reasons, but security does not depend on them.
//
// # Order
//
// A URL is checked first by its text:
//
//  1. It is absolute and has only printable ASCII characters, at most
//     weburl.MaxTargetBytes, no white space, and no backslash before the path.
//  2. The scheme is http or https.
//  3. There is no userinfo.
//  4. The host is a DNS name (letters, digits, hyphens; labels of 1 to 63) or
//     an address in its canonical spelling, without a zone. A host that ends in
//     a number must be a dotted quad: 127.1, 0x7f000001 and 127.0.0.1. are not
//     valid hosts.
//  5. The host matches no deny-host pattern, and one of the only-host
//     patterns if there are any.
//  6. Name rule: the host has several labels and no reserved suffix
//     (localhost, local, internal, svc, home.arpa, onion), or matches an
//     allow-host pattern.
//  7. Port rule: the port is 80, 443, 8080, 8443 or one of allow-port.
//
// Then it is checked at the dial, by the address. An IPv4 address inside an IPv6 one
// (::ffff:0:0/96) counts as the IPv4 address:
//
//  8. It is in no deny-cidr.
//  9. If it is in an allow-cidr, it is permitted regardless of rules 6, 7 and
//     10: an allowed range implies any port and any name. So with an
//     allow-cidr, a denial by rule 6 or 7 waits for the dial. An address of
//     the NAT64 prefix 64:ff9b::/96 is permitted only if the IPv4 address in
//     it is.
//  10. It is public: in no range of the IANA special-purpose registries, inside
//     2000::/3, not internal to a cloud (providerPrefixes), and without an
//     ISATAP interface identifier (RFC 5214 section 6.1).
//
// Deny takes precedence over allow. A denied address is skipped and the other addresses of the name
// are tried. None is dialled unchecked. One dial tries at most 16 addresses.
//
// # Names
//
// Names are looked up as absolute names. The search list of resolv.conf is used only if there is an allow-cidr, and
// only for names that are unknown or have no dot. Otherwise a namespace of the cluster could shadow a public name.
//
// # Namespaces
//
// The flags define the policy of every namespace, and a file adds to it. All lists are merged, from the flags and from
// every entry that matches the namespace, so the order of entries does not matter.
package egress
