package pipeline

import (
	"errors"
	"fmt"
	"strings"
)

// Kind is the start of a subject, before <namespace>.<name>.<key>. It tells what the message is.
type Kind string

// Kinds of subjects.
const (
	KindWant      = Kind("curl.want.")
	KindDue       = Kind("curl.due.")
	KindTimer     = Kind("curl.timer.")
	KindContent   = Kind("curl.result.content.")
	KindFailure   = Kind("curl.result.failure.")
	KindReconcile = Kind("curl.result.reconcile.")
	KindVersion   = Kind("curl.version.")
)

// Prefixes of other subjects.
const (
	deadPrefix = "curl.failure."
	// The kind of the result follows.
	resultPrefix = "curl.result."
	// The subject of the message follows.
	begunPrefix = "curl.begun."
	// Namespace and digest of the body follow.
	bodyPrefix = "curl.body."
)

// ErrSubject means that a subject does not belong to this protocol.
var ErrSubject = errors.New("subject does not belong to the pipeline")

// Key identifies one key of one ConfigMap.
type Key struct {
	// Namespace of the ConfigMap.
	Namespace string
	// Name of the ConfigMap.
	Name string
	// Key in data or binaryData.
	Key string
}

// String returns namespace/name/key.
func (k Key) String() string { return k.Namespace + "/" + k.Name + "/" + k.Key }

func (k Key) tokens() string {
	return token(k.Namespace) + "." + token(k.Name) + "." + token(k.Key)
}

// Want is the subject of the desired state, which is also the first trigger.
func (k Key) Want() string { return KindWant.of(k) }

// Due is the subject of a fired timer or a replay.
func (k Key) Due() string { return KindDue.of(k) }

// Timer is the subject of the pending timer of a key.
func (k Key) Timer() string { return KindTimer.of(k) }

// Content is the subject of fetched bodies.
func (k Key) Content() string { return KindContent.of(k) }

// Failure is the subject of changes of the failure state, including recoveries.
func (k Key) Failure() string { return KindFailure.of(k) }

// Reconcile is the subject of objects to reconcile with their annotations.
func (k Key) Reconcile() string { return KindReconcile.of(k) }

// DeadLetter is the subject of a dead letter with its reason (an Event reason) and host, as
// returned by HostOf. An IP address becomes HiddenHost.
func (k Key) DeadLetter(reason, host string) string {
	return deadPrefix + token(reason) + "." + token(hostName(host)) + "." + k.tokens()
}

// DeadLetterSubjects is the filter for dead letters by reason, host and key (empty means any).
func DeadLetterSubjects(reason, host string, key Key) string {
	return deadPrefix + strings.Join([]string{
		tokenOrAny(reason), tokenOrAny(hostName(host)), tokenOrAny(key.Namespace), tokenOrAny(key.Name), tokenOrAny(key.Key),
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
	for _, kind := range []Kind{KindWant, KindDue, KindTimer, KindContent, KindFailure, KindReconcile} {
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
	parts, err := untokens(subject, deadPrefix, 5)
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
