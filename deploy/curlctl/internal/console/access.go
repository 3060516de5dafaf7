package console

import (
	"context"
	"net/http"
	"time"
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
