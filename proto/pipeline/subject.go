package pipeline

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/kv8s/curl-me-that/proto/weburl"
)

// Kind is the start of a subject, before <namespace>.<name>.<key>. It tells what the message is.
type Kind string

// Kinds of subjects.
const (
	KindWant    = Kind("curl.want.")
	KindDue     = Kind("curl.due.")
	KindTimer   = Kind("curl.timer.")
	KindContent = Kind("curl.result.content.")
	KindFailure = Kind("curl.result.failure.")
	KindSync    = Kind("curl.result.sync.")
	KindVersion = Kind("curl.version.")
)

// Prefixes of other subjects.
const (
	deadLetterPrefix = "curl.failure."
	// The kind of the result follows.
	resultPrefix = "curl.result."
	// The key whose timer is cancelled follows.
	cancelPrefix = "curl.ended."
	// Namespace and digest of the body follow.
	bodyPrefix = "curl.body."
)

// ErrSubject means that a subject does not belong to this protocol.
var ErrSubject = errors.New("subject does not belong to the pipeline")

// Key identifies one key of one ConfigMap.
type Key struct {
	Namespace, Name string
	// Key in data or binaryData.
	Key string
}

// String returns namespace/name/key.
func (k Key) String() string { return k.Namespace + "/" + k.Name + "/" + k.Key }

func (k Key) tokens() string {
	return token(k.Namespace) + "." + token(k.Name) + "." + token(k.Key)
}

// WantSubject is the subject of the desired state, which is also the first trigger.
func (k Key) WantSubject() string { return KindWant.of(k) }

// DueSubject is the subject of a fired timer or a replay.
func (k Key) DueSubject() string { return KindDue.of(k) }

// TimerSubject is the subject of the pending timer of a key.
func (k Key) TimerSubject() string { return KindTimer.of(k) }

// ContentSubject is the subject of fetched bodies.
func (k Key) ContentSubject() string { return KindContent.of(k) }

// FailureSubject is the subject of changes of the failure state, including recoveries.
func (k Key) FailureSubject() string { return KindFailure.of(k) }

// SyncSubject is the subject of objects to bring in line with their annotations.
func (k Key) SyncSubject() string { return KindSync.of(k) }

// resultSubjects is the filter for all results of an object.
func resultSubjects(namespace, name string) string {
	return resultPrefix + Kind("*.").Subjects(namespace, name)
}

// DeadLetterSubject is the subject of a dead letter with its reason (an Event reason) and host, as
// returned by weburl.HostOf. An IP address becomes weburl.HiddenHost.
func (k Key) DeadLetterSubject(reason, host string) string {
	return deadLetterPrefix + token(reason) + "." + token(weburl.ShownHost(host)) + "." + k.tokens()
}

// DeadLetterSubjects is the filter for dead letters by reason, host and key (empty means any).
func DeadLetterSubjects(reason, host string, key Key) string {
	return deadLetterPrefix + strings.Join([]string{
		tokenOrAny(reason), tokenOrAny(weburl.ShownHost(host)),
		tokenOrAny(key.Namespace), tokenOrAny(key.Name), tokenOrAny(key.Key),
	}, ".")
}

// tokenOrAny returns the token of a value, or the wildcard if it is empty.
func tokenOrAny(value string) string {
	if value == "" {
		return "*"
	}
	return token(value)
}

// Template returns the subjects of a kind with named placeholders, such as
// curl.want.{namespace}.{name}.{key}.
func (k Kind) Template() string {
	if k == "" {
		return ""
	}
	return string(k) + "{namespace}.{name}.{key}"
}

// Subjects is the filter for all keys of a namespace and name (empty means any).
func (k Kind) Subjects(namespace, name string) string {
	return string(k) + tokenOrAny(namespace) + "." + tokenOrAny(name) + ".*"
}

// String returns the constant tokens of the subjects of a kind, such as curl.want.
func (k Kind) String() string { return strings.TrimSuffix(string(k), ".") }

// All is the filter for all subjects of a kind.
func (k Kind) All() string { return string(k) + ">" }

// of returns the subject of a key.
func (k Kind) of(key Key) string { return string(k) + key.tokens() }

// ParseSubject returns the kind and key of a subject in CURL_REQUESTS or CURL_RESULTS, or
// ErrSubject.
func ParseSubject(subject string) (Kind, Key, error) {
	for _, kind := range []Kind{KindWant, KindDue, KindTimer, KindContent, KindFailure, KindSync} {
		if strings.HasPrefix(subject, string(kind)) {
			parts, err := untokens(subject, string(kind), 3)
			if err != nil {
				return kind, Key{}, err
			}
			return kind, Key{Namespace: parts[0], Name: parts[1], Key: parts[2]}, nil
		}
	}
	return "", Key{}, fmt.Errorf("%w: %q", ErrSubject, subject)
}

// ParseDeadLetter returns reason, host and key of a subject in CURL_FAILURES, or ErrSubject.
func ParseDeadLetter(subject string) (reason, host string, key Key, err error) {
	parts, err := untokens(subject, deadLetterPrefix, 5)
	if err != nil {
		return "", "", Key{}, err
	}
	return parts[0], parts[1], Key{Namespace: parts[2], Name: parts[3], Key: parts[4]}, nil
}

// untokens decodes exactly n tokens after a prefix.
func untokens(subject, prefix string, n int) (parts []string, err error) {
	rest, ok := strings.CutPrefix(subject, prefix)
	parts = strings.Split(rest, ".")
	if !ok || len(parts) != n {
		return nil, fmt.Errorf("%w: %q", ErrSubject, subject)
	}
	for i, part := range parts {
		if parts[i], err = untoken(part); err != nil {
			return nil, err
		}
	}
	return parts, nil
}

// emptyToken encodes the empty string: a subject has no empty tokens, and a lone percent sign is
// not an escape sequence.
const emptyToken = "%"

// token encodes s as one token of a subject. Letters, digits, '-', '_' and ':' stay as they are,
// every other byte becomes %XX, so that no value can add a token or a wildcard. The mapping is one
// to one.
func token(s string) string {
	if s == "" {
		return emptyToken
	}
	if strings.IndexFunc(s, special) < 0 {
		return s
	}
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; special(rune(c)) {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// untoken is the inverse of token. It only accepts output of token.
func untoken(t string) (string, error) {
	if t == emptyToken {
		return "", nil
	}
	s, err := url.PathUnescape(t)
	if err != nil || token(s) != t {
		return "", fmt.Errorf("%w: token %q", ErrSubject, t)
	}
	return s, nil
}

func special(c rune) bool {
	return (c|0x20 < 'a' || c|0x20 > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' && c != ':'
}
