package egress

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strconv"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/failure"
	"github.com/kv8s/curl-me-that/proto/sentence"
	"github.com/kv8s/curl-me-that/proto/weburl"
)

// ErrDenied matches every *DeniedError in errors.Is.
var ErrDenied = errors.New("denied by the egress policy")

// ErrUnreachable means that the policy denied some addresses of a name, and that connections to all others failed.
var ErrUnreachable = errors.New("could not connect to the permitted addresses of the host")

// Rule is a rule of the policy that denied something.
type Rule string

// Rules that deny.
const (
	RuleSyntax   Rule = "syntax"    // not an absolute URL of printable ASCII
	RuleLength   Rule = "length"    // longer than weburl.MaxTargetBytes
	RuleScheme   Rule = "scheme"    // neither http nor https
	RuleUserinfo Rule = "userinfo"  // credentials in the URL
	RuleHost     Rule = "host"      // neither a DNS name nor a canonical address
	RuleDenyHost Rule = "deny-host" // the host matches a deny-host pattern
	RuleOnlyHost Rule = "only-host" // the host matches none of the only-host patterns
	RuleName     Rule = "name"      // a single label or a reserved suffix
	RulePort     Rule = "port"      // the port is not allowed
	RuleAddress  Rule = "address"   // no address of the host is public or allowed
	RuleDenyCIDR Rule = "deny-cidr" // the address lies in a deny-cidr
)

// DeniedError means that the policy denied something. Its text names the rule, never an address, a port or a host.
type DeniedError struct {
	// Rule that denied.
	Rule Rule
	// Further rules that deny the same, of name, port and address.
	Further []Rule
}

// denied returns an error with all rules, or nil without any.
func denied(rules []Rule) error {
	switch len(rules) {
	case 0:
		return nil
	case 1:
		return &DeniedError{Rule: rules[0]}
	}
	return &DeniedError{Rule: rules[0], Further: rules[1:]}
}

// Error names the rules in one sentence.
func (d *DeniedError) Error() string {
	return cmp.Or(rules[d.Rule].text, sentence.Detail(&v1.Failure{Detail: d.Detail(), Further: d.FurtherDetails()}))
}

// rules has the failure detail of each rule, and a sentence for those that share DENIED_URL.
var rules = map[Rule]struct {
	detail v1.FailureDetail
	text   string
}{
	RuleSyntax: {failure.DeniedURL, "the URL is not an absolute URL of printable ASCII characters"},
	RuleLength: {
		failure.DeniedURL, "the URL is longer than " + strconv.Itoa(weburl.MaxTargetBytes) + " characters",
	},
	RuleScheme:   {failure.DeniedScheme, ""},
	RuleUserinfo: {failure.DeniedURL, "the URL contains credentials"},
	RuleHost:     {failure.DeniedURL, "the host is neither a DNS name nor an address in its usual form"},
	RuleDenyHost: {failure.DeniedHost, ""},
	RuleOnlyHost: {failure.HostNotAllowed, ""},
	RuleName:     {failure.DeniedName, ""},
	RulePort:     {failure.DeniedPort, ""},
	RuleAddress:  {failure.DeniedAddress, ""},
	RuleDenyCIDR: {failure.DeniedRange, ""},
}

// Rules returns all rules.
func Rules() []Rule { return slices.Sorted(maps.Keys(rules)) }

// Detail returns the rule as a failure detail.
func (d *DeniedError) Detail() v1.FailureDetail { return rules[d.Rule].detail }

// FurtherDetails returns the further rules as failure details.
func (d *DeniedError) FurtherDetails() (further []v1.FailureDetail) {
	for _, rule := range d.Further {
		further = append(further, rules[rule].detail)
	}
	return further
}

// Is reports whether target is ErrDenied.
func (d *DeniedError) Is(target error) bool { return target == ErrDenied }
