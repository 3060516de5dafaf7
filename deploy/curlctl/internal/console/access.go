package console

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/natsconn"
)

// Right is what a person may do: a verb, and one of the resources that the
// console knows.
type Right string

// The rights. The console asks for nothing else.
const (
	seeRight    Right = "get failures"
	replayRight Right = "create replays"
	purgeRight  Right = "delete failures"
	pauseRight  Right = "update pipelines"
	auditsRight Right = "get audits"
)

// Person is a user of the console.
type Person struct {
	// Name of the person, or of the NATS user.
	Name string
	// OnBehalfOf goes into the audit where NATS knows the console only.
	OnBehalfOf string

	// until is when the person has to sign in again; zero: never.
	until  time.Time
	groups []string
	uid    string
	extra  map[string][]string
}

// Access decides who may do what: Local, Kubernetes or Anonymous.
type Access interface {
	// person returns who asks; nil: it has written the response.
	person(w http.ResponseWriter, r *http.Request) *Person
	// may reports whether the person has a right in a namespace; empty: in all. The
	// error is that of an API server that does not answer.
	may(ctx context.Context, p *Person, right Right, namespace string) (bool, error)
	// guard wraps all requests.
	guard(next http.Handler) http.Handler
	// routes adds pages to sign in and out.
	routes(mux *http.ServeMux, s *Server)
}

// Refusals are what NATS has refused lately. The zero value is ready.
type Refusals struct {
	mu      sync.Mutex
	all     map[string]refused
	waiting map[*waiting]bool
}

type refused struct {
	err *natsconn.PermissionError
	at  time.Time
}

// waiting is what ends when NATS refuses something of a stream or subject.
type waiting struct {
	subject string
	end     context.CancelCauseFunc
}

// Add adds one; it is given to natsconn.Options.
func (r *Refusals) Add(e *natsconn.PermissionError) {
	r.mu.Lock()
	defer r.mu.Unlock()
	const most = 100
	if r.all == nil || len(r.all) >= most {
		r.all = map[string]refused{}
	}
	r.all[e.Operation+" "+e.Subject] = refused{e, time.Now()}
	for one := range r.waiting {
		if strings.Contains(e.Subject, one.subject) {
			one.end(e)
		}
	}
}

// cancelOnDenied returns a context that ends, with a *natsconn.PermissionError as its
// cause, when NATS refuses something of a stream or subject; empty: of any. There is
// no response to what is refused.
func (r *Refusals) cancelOnDenied(ctx context.Context, subject string) (context.Context, context.CancelFunc) {
	ctx, end := context.WithCancelCause(ctx)
	one := &waiting{subject, end}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.waiting == nil {
		r.waiting = map[*waiting]bool{}
	}
	r.waiting[one] = true
	return ctx, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.waiting, one)
		end(nil)
	}
}

// since returns one that was refused since a time; nil: there is none.
func (r *Refusals) since(at time.Time) *natsconn.PermissionError {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, one := range r.all {
		if !one.at.Before(at) {
			return one.err
		}
	}
	return nil
}
