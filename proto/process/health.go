package process

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// Health tracks which parts of a process are ready. The process is ready when all of them are.
type Health struct {
	prefix string
	*parts
}

// parts are shared by a Health and its groups.
type parts struct {
	mu   sync.Mutex
	list []*Part
}

// NewHealth returns a Health without parts, which is ready.
func NewHealth() *Health { return &Health{parts: &parts{}} }

// Group returns a view of h that prefixes the names of new parts with name/, for several services
// in one process.
func (h *Health) Group(name string) *Health {
	return &Health{prefix: h.prefix + name + "/", parts: h.parts}
}

// Part adds a part that is not ready yet.
func (h *Health) Part(name string) *Part {
	p := &Part{name: h.prefix + name}
	p.NotReady("starting")
	h.mu.Lock()
	defer h.mu.Unlock()
	h.list = append(h.list, p)
	return p
}

// Ready reports whether all parts are ready.
func (h *Health) Ready() bool {
	return !slices.ContainsFunc(h.sorted(), func(p *Part) bool { return p.why() != "" })
}

func (h *Health) sorted() []*Part {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := slices.Clone(h.list)
	slices.SortStableFunc(list, func(a, b *Part) int { return strings.Compare(a.name, b.name) })
	return list
}

// ServeHTTP responds with 200 if all parts are ready, else with 503. With ?verbose it lists the
// parts like Kubernetes components do.
func (h *Health) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var list strings.Builder
	code, sum := http.StatusOK, "ok"
	for _, p := range h.sorted() {
		if why := p.why(); why != "" {
			code, sum = http.StatusServiceUnavailable, "not ready"
			fmt.Fprintf(&list, "[-]%s not ready: %s\n", p.name, why)
		} else {
			fmt.Fprintf(&list, "[+]%s ok\n", p.name)
		}
	}
	if _, verbose := r.URL.Query()["verbose"]; !verbose && code == http.StatusOK {
		list.Reset()
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	fmt.Fprint(w, list.String()+sum)
}

// Part is something that must work for the process to be ready. A nil Part does nothing.
type Part struct {
	name string
	// reason why it does not work (empty if it does).
	reason atomic.Pointer[string]
}

// Ready marks the part as ready.
func (p *Part) Ready() { p.NotReady("") }

// NotReady marks the part as not ready. The reason must be a constant sentence: anybody can read it,
// so error texts belong in the log.
func (p *Part) NotReady(reason string) {
	if p != nil {
		p.reason.Store(&reason)
	}
}

func (p *Part) why() string { return *p.reason.Load() }
