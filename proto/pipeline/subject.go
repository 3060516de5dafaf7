package pipeline

import (
	"fmt"
	"strings"
)

// Prefixes of the subjects; <ns>.<name>.<key> follows.
const (
	wantPrefix    = "curl.want."
	duePrefix     = "curl.due."
	timerPrefix   = "curl.timer."
	contentPrefix = "curl.result.content."
	failurePrefix = "curl.result.failure."
	removedPrefix = "curl.result.removed."
	deadPrefix    = "curl.failure."
	recordPrefix  = "curl.record."
	// What operators did until version 0.1, among the failures.
	auditPrefix = "curl.audit."
	// The subject of a message follows.
	begunPrefix = "curl.begun."
)

// Key names one key of one ConfigMap.
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
func (k Key) Want() string { return wantPrefix + k.tokens() }

// Due is the subject of a fired timer or a replay.
func (k Key) Due() string { return duePrefix + k.tokens() }

// Timer is the subject of the one pending timer.
func (k Key) Timer() string { return timerPrefix + k.tokens() }

// Content is the subject of fetched bodies.
func (k Key) Content() string { return contentPrefix + k.tokens() }

// Failure is the subject of changes of the failure state, the end of a failure
// included.
func (k Key) Failure() string { return failurePrefix + k.tokens() }

// Removed is the subject of pairs taken out of the annotation.
func (k Key) Removed() string { return removedPrefix + k.tokens() }

// DeadLetter is the subject of a failure that is kept, for its reason (an
// Event reason) and host, which HostOf gives; an address becomes HiddenHost here
// at the latest.
func (k Key) DeadLetter(reason, host string) string {
	return deadPrefix + token(reason) + "." + token(hostName(host)) + "." + k.tokens()
}

// DeadLetterSubjects is the filter for the dead letters of a reason and host, of
// the key in a ConfigMap; empty: any.
func DeadLetterSubjects(reason, host string, key Key) string {
	return deadPrefix + strings.Join([]string{
		tokenOrAny(reason), tokenOrAny(hostName(host)), tokenOrAny(key.Namespace), tokenOrAny(key.Name), tokenOrAny(key.Key),
	}, ".")
}

// AuditSubject is the subject of what a user did, with an id among all that the
// user ever did; empty: any.
func AuditSubject(action, user, id string) string {
	return recordPrefix + tokenOrAny(action) + "." + tokenOrAny(user) + "." + tokenOrAny(id)
}

// FormerAuditSubjects is the filter for what operators did before there was a
// stream for it; it is in Failures.
const FormerAuditSubjects = auditPrefix + "*.*.>"

// ParseAudit returns action and user of a subject of AuditSubject, or of one that
// FormerAuditSubjects matches, or ErrSubject.
func ParseAudit(subject string) (action, user string, err error) {
	rest, ok := strings.CutPrefix(subject, recordPrefix)
	if !ok {
		rest, ok = strings.CutPrefix(subject, auditPrefix)
	}
	parts := strings.Split(rest, ".")
	if !ok || len(parts) != 3 {
		return "", "", fmt.Errorf("%w: %q", ErrSubject, subject)
	}
	if action, err = untoken(parts[0]); err != nil {
		return "", "", err
	}
	user, err = untoken(parts[1])
	return action, user, err
}

// tokenOrAny returns the token of a value, or the wildcard when there is none.
func tokenOrAny(value string) string {
	if value == "" {
		return "*"
	}
	return token(value)
}

// Kind is what a subject carries.
type Kind int

// The kinds of subjects.
const (
	KindWant Kind = iota + 1
	KindDue
	KindTimer
	KindContent
	KindFailure
	KindRemoved
)

// Template returns the subjects of a kind with their variable tokens named,
// such as curl.want.{namespace}.{name}.{key}.
func (k Kind) Template() string {
	prefix := k.prefix()
	if prefix == "" {
		return ""
	}
	return prefix + "{namespace}.{name}.{key}"
}

// Subjects is the filter for all keys of a namespace and name; empty: of all.
func (k Kind) Subjects(namespace, name string) string {
	return k.prefix() + tokenOrAny(namespace) + "." + tokenOrAny(name) + ".*"
}

// String returns the constant tokens of the subjects of a kind, such as
// curl.want.
func (k Kind) String() string { return strings.TrimSuffix(k.prefix(), ".") }

func (k Kind) prefix() string {
	switch k {
	case KindWant:
		return wantPrefix
	case KindDue:
		return duePrefix
	case KindTimer:
		return timerPrefix
	case KindContent:
		return contentPrefix
	case KindFailure:
		return failurePrefix
	case KindRemoved:
		return removedPrefix
	}
	return ""
}

// ParseSubject returns the kind and key of a subject in CURL_REQUESTS or
// CURL_RESULTS, or ErrSubject.
func ParseSubject(subject string) (Kind, Key, error) {
	for kind := KindWant; kind <= KindRemoved; kind++ {
		if rest, ok := strings.CutPrefix(subject, kind.prefix()); ok {
			key, err := parseKey(rest)
			return kind, key, err
		}
	}
	return 0, Key{}, fmt.Errorf("%w: %q", ErrSubject, subject)
}

// ParseDeadLetter returns reason, host and key of a subject in CURL_FAILURES,
// or ErrSubject.
func ParseDeadLetter(subject string) (reason, host string, key Key, err error) {
	rest, ok := strings.CutPrefix(subject, deadPrefix)
	if !ok {
		return "", "", Key{}, fmt.Errorf("%w: %q", ErrSubject, subject)
	}
	parts := strings.SplitN(rest, ".", 3)
	if len(parts) != 3 {
		return "", "", Key{}, fmt.Errorf("%w: %q", ErrSubject, subject)
	}
	if reason, err = untoken(parts[0]); err != nil {
		return "", "", Key{}, err
	}
	if host, err = untoken(parts[1]); err != nil {
		return "", "", Key{}, err
	}
	key, err = parseKey(parts[2])
	return reason, host, key, err
}

func parseKey(tokens string) (Key, error) {
	parts := strings.Split(tokens, ".")
	if len(parts) != 3 {
		return Key{}, fmt.Errorf("%w: %d tokens where 3 are due", ErrSubject, len(parts))
	}
	var out [3]string
	for i, p := range parts {
		s, err := untoken(p)
		if err != nil {
			return Key{}, err
		}
		out[i] = s
	}
	return Key{Namespace: out[0], Name: out[1], Key: out[2]}, nil
}
