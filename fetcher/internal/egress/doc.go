// Package egress decides which addresses may be reached.
//
// A tenant chooses the URL and the DNS answers, so the wall stands at the
// dial: every connection attempt, of every redirect and of every address that
// a name has, is checked when its address is known, just before the first
// packet leaves. The checks of the text that come before it save work and give
// better reasons; they are not what safety rests on.
//
// # Order
//
// A URL is checked first by its text:
//
//  1. It has at most 2,048 printable ASCII characters, no white space and no
//     backslash, and is absolute.
//  2. The scheme is http or https.
//  3. There is no userinfo.
//  4. The host is a DNS name (letters, digits, hyphens; labels of 1 to 63) or
//     an address in its canonical spelling, without a zone. What ends in a
//     number and is not a dotted quad (127.1, 0x7f000001, 127.0.0.1.) is not
//     a host.
//  5. The host matches no deny-host pattern, and one of the only-host
//     patterns if there are any.
//  6. Name rule: the host has several labels and no reserved suffix
//     (localhost, local, internal, svc, home.arpa, onion), or matches an
//     allow-host pattern.
//  7. Port rule: the port is 80, 443, 8080, 8443 or one of allow-port.
//
// Then, at the dial, by the address; an IPv4 address inside an IPv6 one
// (::ffff:0:0/96) counts as the IPv4 address:
//
//  8. It lies in no deny-cidr.
//  9. If it lies in an allow-cidr it is permitted in spite of rules 6, 7 and
//     10: an allowed range implies any port and any name. Where rule 6 or 7
//     objects and allow-cidr is given, their verdict waits for the dial. An
//     address of the NAT64 prefix 64:ff9b::/96 is permitted only if the IPv4
//     address in it is.
//  10. It is public: no range of the IANA special-purpose registries, nothing
//     outside 2000::/3, no address that is internal to a cloud (providerPrefixes), no
//     ISATAP interface identifier (RFC 5214 section 6.1).
//
// Deny wins over allow. An address that is refused is skipped, the other
// addresses of the name are tried, and none is dialled without a verdict. At
// most 16 addresses are tried for one dial.
//
// # Names
//
// A name is looked up as it stands, from the root. Only where allow-cidr is
// given, and the name is unknown, the search list of resolv.conf is applied:
// otherwise a namespace of the cluster could shadow a public name.
//
// # Namespaces
//
// The flags give the policy of every namespace; a file adds to it. All lists
// add up, those of the flags and those of every entry that matches the
// namespace, so the order of entries has no meaning.
package egress
