package cluster

import (
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"
)

// Call is a kind of request to the API server.
type Call struct {
	// Resource such as configmaps, Verb such as PATCH as the metrics of the
	// API server name them, and the status Code of the answer.
	Resource, Verb, Code string
}

// counted are the resources that the services have to do with, apart from the
// Lease of an election.
func counted(resource string) bool { return resource == "configmaps" || resource == "events" }

// tally counts the requests of this process.
type tally struct {
	mu    sync.Mutex
	calls map[Call]int
}

func newTally() *tally { return &tally{calls: map[Call]int{}} }

func (t *tally) add(c Call) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.calls[c]++
}

func (t *tally) snapshot() map[Call]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.calls)
}

// counting is a transport that counts what passes it.
type counting struct {
	next  http.RoundTripper
	tally *tally
}

// RoundTrip sends a request.
func (c counting) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := c.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if call, ok := callOf(r, response.StatusCode); ok {
		c.tally.add(call)
	}
	return response, nil
}

// callOf names a request of this process as the API server does. It knows no
// watches: the API server counts them when they end, and ours do not before all
// has been measured.
func callOf(r *http.Request, code int) (Call, bool) {
	_, path, found := strings.Cut(r.URL.Path, "/namespaces/")
	parts := strings.Split(path, "/") // namespace, resource, name
	if !found || len(parts) < 2 || !counted(parts[1]) || r.URL.Query().Get("watch") != "" {
		return Call{}, false
	}
	verb := r.Method
	if verb == http.MethodGet && len(parts) == 2 {
		verb = "LIST"
	}
	return Call{Resource: parts[1], Verb: verb, Code: strconv.Itoa(code)}, true
}
