package egress

import (
	"errors"
	"strconv"

	"github.com/kv8s/curl-me-that/proto/annotation/weburl"
)

// ErrDenied matches every *DeniedError in errors.Is.
var ErrDenied = errors.New("denied by the egress policy")

// ErrUnreachable is returned by a dial when some addresses of a name were
// refused by the policy and none of the others could be connected to.
var ErrUnreachable = errors.New("connect to the permitted addresses of the host")

// Class is the rule by which something is denied, from a closed set.
type Class string

// Classes of denial.
const (
	// ClassSyntax: not an absolute URL of printable ASCII.
	ClassSyntax Class = "syntax"
	// ClassLength: longer than weburl.MaxBytes.
	ClassLength Class = "length"
	// ClassScheme: neither http nor https.
	ClassScheme Class = "scheme"
	// ClassUserinfo: credentials in the URL.
	ClassUserinfo Class = "userinfo"
	// ClassHost: neither a DNS name nor a canonical address.
	ClassHost Class = "host"
	// ClassDenyHost: the host matches a deny-host pattern.
	ClassDenyHost Class = "deny-host"
	// ClassOnlyHost: the host matches none of the only-host patterns.
	ClassOnlyHost Class = "only-host"
	// ClassName: a single label or a reserved suffix.
	ClassName Class = "name"
	// ClassPort: the port is not allowed.
	ClassPort Class = "port"
	// ClassAddress: no address of the host is public or allowed.
	ClassAddress Class = "address"
	// ClassDenyCIDR: the address lies in a deny-cidr.
	ClassDenyCIDR Class = "deny-cidr"
)

// Classes returns all classes.
func Classes() []Class {
	return []Class{
		ClassSyntax, ClassLength, ClassScheme, ClassUserinfo, ClassHost, ClassDenyHost,
		ClassOnlyHost, ClassName, ClassPort, ClassAddress, ClassDenyCIDR,
	}
}

// DeniedError is the error of everything that the policy refuses. Its text names
// the rule, never an address, a port or a host.
type DeniedError struct {
	// Class is the rule that refused.
	Class Class
}

// Error names in one sentence the rule that refused.
func (d *DeniedError) Error() string {
	switch d.Class {
	case ClassSyntax:
		return "the URL is not an absolute URL of printable ASCII characters"
	case ClassLength:
		return "the URL is longer than " + strconv.Itoa(weburl.MaxBytes) + " characters"
	case ClassScheme:
		return "the scheme is neither http nor https"
	case ClassUserinfo:
		return "the URL carries credentials"
	case ClassHost:
		return "the host is neither a DNS name nor an address in its usual form"
	case ClassDenyHost:
		return "the host is on the operator's list of denied hosts"
	case ClassOnlyHost:
		return "the host is not on the operator's list of hosts"
	case ClassName:
		return "the host has a single label or a reserved suffix"
	case ClassPort:
		return "the port is not allowed"
	case ClassDenyCIDR:
		return "the host has an address that the operator denies"
	default:
		return "the host has no public address"
	}
}

// Is reports whether target is ErrDenied.
func (d *DeniedError) Is(target error) bool { return target == ErrDenied }
