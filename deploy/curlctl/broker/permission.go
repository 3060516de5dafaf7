package broker

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// Names of the identities.
const (
	// Viewer sees everything and changes nothing.
	Viewer = "viewer"
	// Replayer also replays and refetches.
	Replayer = "replayer"
	// Admin also pauses and purges.
	Admin = "admin"
)

// Identity is a set of permissions that a NATS user needs for some commands.
type Identity struct {
	// Name of the identity.
	Name string
	// Publish and Subscribe are the allowed subjects.
	Publish, Subscribe []string
}

// Identities returns the identities. Each has the permissions of the previous one.
func Identities() []Identity {
	viewer := Identity{
		Name: Viewer,
		Publish: []string{
			"$SYS.REQ.USER.INFO",
			"$JS.API.STREAM.INFO.CURL_REQUESTS", "$JS.API.STREAM.INFO.CURL_RESULTS",
			"$JS.API.STREAM.INFO.CURL_FAILURES", "$JS.API.STREAM.INFO.CURL_HISTORY",
			"$JS.API.CONSUMER.INFO.CURL_REQUESTS.fetcher", "$JS.API.CONSUMER.INFO.CURL_RESULTS.writer",
			"$JS.API.DIRECT.GET.CURL_REQUESTS", "$JS.API.DIRECT.GET.CURL_REQUESTS.>",
			"$JS.API.DIRECT.GET.CURL_FAILURES",
			"$JS.API.DIRECT.GET.CURL_HISTORY", "$JS.API.DIRECT.GET.CURL_HISTORY.curl.body.>",
		},
		Subscribe: []string{"_INBOX_curlctl.>"},
	}
	replayer := Identity{
		Name:      Replayer,
		Publish:   append(slices.Clone(viewer.Publish), "curl.due.>", "curl.timer.>"),
		Subscribe: viewer.Subscribe,
	}
	admin := Identity{
		Name: Admin,
		Publish: append(slices.Clone(replayer.Publish),
			"$JS.API.CONSUMER.PAUSE.CURL_REQUESTS.fetcher",
			"$JS.API.STREAM.PURGE.CURL_FAILURES", "$JS.API.STREAM.MSG.DELETE.CURL_FAILURES",
		),
		Subscribe: viewer.Subscribe,
	}
	return []Identity{viewer, replayer, admin}
}

// Missing returns the subjects that a user may not use. A subject of the JetStream API may be allowed with the
// prefix api of the client, or with pipeline.DefaultAPIPrefix, which servers check in any domain.
func (i Identity) Missing(user User, api string) []string {
	var missing []string
	for _, subject := range i.Publish {
		if rest, found := strings.CutPrefix(subject, pipeline.DefaultAPIPrefix); found && allowed(user.Publish, api+rest) {
			continue
		}
		if !allowed(user.Publish, subject) {
			missing = append(missing, subject)
		}
	}
	for _, subject := range i.Subscribe {
		if !allowed(user.Subscribe, subject) {
			missing = append(missing, subject)
		}
	}
	return missing
}

func allowed(rules *Rules, subject string) bool {
	if rules == nil {
		return true
	}
	covers := func(pattern string) bool { return covers(pattern, subject) }
	if slices.ContainsFunc(rules.Deny, covers) {
		return false
	}
	return len(rules.Allow) == 0 || slices.ContainsFunc(rules.Allow, covers)
}

// covers reports whether pattern matches everything that subject matches.
func covers(pattern, subject string) bool {
	p, s := strings.Split(pattern, "."), strings.Split(subject, ".")
	for i, token := range p {
		switch {
		case token == ">":
			return len(s) > i
		case i >= len(s), s[i] == ">":
			return false
		case token != "*" && token != s[i]:
			return false
		}
	}
	return len(p) == len(s)
}

// userInfo is the subject on which the server reports the user of a connection.
const userInfo = "$SYS.REQ.USER.INFO"

// userTimeout limits that request. Without the permission for it there is no response.
const userTimeout = 2 * time.Second

// anonymous is the name of a user without a name.
const anonymous = "anonymous"

// User is the user of a connection.
type User struct {
	// Name is a user name, a public key, or anonymous.
	Name string
	Permissions
}

// Permissions of a user (nil: everything is allowed).
type Permissions struct {
	Publish   *Rules `json:"publish"`
	Subscribe *Rules `json:"subscribe"`
}

// Rules are subjects with wildcards.
type Rules struct {
	// Allow lists the allowed subjects (empty: every subject that Deny does not list).
	Allow []string `json:"allow"`
	// Deny lists denied subjects.
	Deny []string `json:"deny"`
}

// errUser means that the server gave no usable response.
var errUser = errors.New("the server did not report which user this is")

// User asks the server for the user of this connection. Without the permission to publish $SYS.REQ.USER.INFO it
// returns the name used to connect, and errUser.
func (c *Connection) User(ctx context.Context) (User, error) {
	fallback := User{Name: cmp.Or(c.Conn.Opts.User, anonymous)}
	ctx, cancel := context.WithTimeout(ctx, userTimeout)
	defer cancel()
	m, err := c.Conn.RequestWithContext(ctx, userInfo, nil)
	if err != nil {
		return fallback, errUser
	}
	var answer struct {
		Data struct {
			User        string      `json:"user"`
			UserName    string      `json:"user_name"`
			Permissions Permissions `json:"permissions"`
		} `json:"data"`
	}
	if err := json.Unmarshal(m.Data, &answer); err != nil {
		return fallback, errUser
	}
	name := cmp.Or(answer.Data.UserName, answer.Data.User, fallback.Name)
	return User{Name: name, Permissions: answer.Data.Permissions}, nil
}

// Denials notes the permission violations on a connection. The zero value is ready.
type Denials struct {
	mu   sync.Mutex
	last *PermissionError
	// closed is why the connection is closed for good (nil if it is not).
	closed  error
	waiting map[context.Context]waiting
}

// waiting is a context that a denial of some subjects ends.
type waiting struct {
	of  Subjects
	end context.CancelCauseFunc
}

func (d *Denials) add(e *PermissionError) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last = e
	for _, w := range d.waiting {
		if w.of(e.Subject) {
			w.end(e)
		}
	}
}

// close ends all contexts, and all later ones.
func (d *Denials) close(cause error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = cause
	for _, w := range d.waiting {
		w.end(cause)
	}
}

// Subjects say whose denial ends a context.
type Subjects func(subject string) bool

// AnySubject is each subject.
func AnySubject(string) bool { return true }

// NoSubject is no subject.
func NoSubject(string) bool { return false }

// ToList is a subject that lists of keys and failures need. A replay and the body of a version need others.
func ToList(subject string) bool {
	return !strings.HasPrefix(subject, "curl.") && !strings.Contains(subject, ".CURL_HISTORY.curl.body.")
}

// CancelOnDenied returns a context that ends when one of the subjects is denied, with a *PermissionError as its cause,
// or when the connection is closed for good. Without it, the denied request would wait until its timeout.
func (d *Denials) CancelOnDenied(ctx context.Context, of Subjects) (context.Context, context.CancelFunc) {
	ctx, end := context.WithCancelCause(ctx)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.waiting == nil {
		d.waiting = map[context.Context]waiting{}
	}
	d.waiting[ctx] = waiting{of, end}
	if d.closed != nil {
		end(d.closed)
	}
	return ctx, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.waiting, ctx)
		end(nil)
	}
}

// LastSince returns the last violation, or nil if it was before a time.
func (d *Denials) LastSince(at time.Time) *PermissionError {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.last == nil || d.last.at.Before(at) {
		return nil
	}
	return d.last
}

// PermissionError means that the server denied an operation.
type PermissionError struct {
	// Operation is "publish to" or "subscribe to", if the server names it.
	Operation string
	// Subject of the operation.
	Subject string

	at time.Time
}

// Error implements error.
func (p *PermissionError) Error() string {
	return "this NATS user may not " + p.Operation + " " + p.Subject +
		": use another identity (--context or --nats-creds), or ask for that permission"
}

var violation = regexp.MustCompile(`(?i)permissions violation for (publish|subscription) to "([^"]+)"`)

// denial parses a permission violation. It returns nil for other errors, and for the optional request of User.
func denial(err error) *PermissionError {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return nil
	}
	denied := &PermissionError{
		Operation: "do this:", Subject: "the server did not name the subject", at: time.Now(),
	}
	if match := violation.FindStringSubmatch(err.Error()); match != nil {
		denied.Operation, denied.Subject = "publish to", match[2]
		if strings.EqualFold(match[1], "subscription") {
			denied.Operation = "subscribe to"
		}
	}
	if denied.Subject == userInfo {
		return nil
	}
	return denied
}
