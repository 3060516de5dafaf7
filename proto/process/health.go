package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
)

// Health tracks which parts of a process are ready. The process is ready when all of them are.
type Health struct {
	prefix string
	*parts
}

// parts are shared by a Health and its groups.
type parts struct {
	mu   sync.Mutex
	list []*HealthPart
}

// NewHealth returns a Health without parts, which is ready.
func NewHealth() *Health { return &Health{parts: &parts{}} }

// Group returns a view of h that prefixes the names of new parts with name/, for several services
// in one process.
func (h *Health) Group(name string) *Health {
	return &Health{prefix: h.prefix + name + "/", parts: h.parts}
}

// Part adds a part that is not ready yet.
func (h *Health) Part(name string) *HealthPart {
	p := &HealthPart{name: h.prefix + name}
	p.NotReady("starting")
	h.mu.Lock()
	defer h.mu.Unlock()
	h.list = append(h.list, p)
	return p
}

// Ready reports whether all parts are ready.
func (h *Health) Ready() bool { return len(h.Unready()) == 0 }

// Unready lists the parts that are not ready, each with its reason: "nats (no connection to NATS)".
func (h *Health) Unready() (parts []string) {
	for _, p := range h.sorted() {
		if why := p.why(); why != "" {
			parts = append(parts, p.name+" ("+why+")")
		}
	}
	return parts
}

func (h *Health) sorted() []*HealthPart {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := slices.Clone(h.list)
	slices.SortStableFunc(list, func(a, b *HealthPart) int { return strings.Compare(a.name, b.name) })
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

// HealthPart is something that must work for the process to be ready. A nil HealthPart does nothing.
type HealthPart struct {
	name string
	// reason why it does not work (empty if it does).
	reason atomic.Pointer[string]
}

// Ready marks the part as ready.
func (p *HealthPart) Ready() { p.NotReady("") }

// NotReady marks the part as not ready. The reason must be a constant sentence: anybody can read it,
// so error texts belong in the log.
func (p *HealthPart) NotReady(reason string) {
	if p != nil {
		p.reason.Store(&reason)
	}
}

func (p *HealthPart) why() string { return *p.reason.Load() }

const (
	// listenFlag is the flag for the health address.
	listenFlag = "listen"
	// healthcheckTimeout is shorter than the health check timeout of container engines.
	healthcheckTimeout = 3 * time.Second
	// maxReadiness is the maximum number of bytes to read of a response.
	maxReadiness = 16 << 10
)

// addHealthcheck adds a subcommand that checks the health of a running process, because images
// without a shell have no other client.
func addHealthcheck(cmd *cobra.Command) {
	listen := cmd.Flags().Lookup(listenFlag)
	if listen == nil {
		return
	}
	check := &cobra.Command{
		Use:   "healthcheck",
		Short: "Check whether the running process is ready, and exit with 1 if it is not",
		Long: "Healthcheck asks the process that serves health at the address of --listen whether\n" +
			"all its parts are ready: for a container's HEALTHCHECK. Give it the same --listen,\n" +
			"by flag or environment, as the process.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := askReady(cmd.Context(), listen.Value.String()); err != nil {
				return fmt.Errorf("healthcheck: %w", err)
			}
			return nil
		},
	}
	check.Flags().AddFlag(listen)
	cmd.AddCommand(check)
}

// askReady returns nil if the process at the address is ready, or else the reason in one sentence.
func askReady(ctx context.Context, listen string) error {
	if listen == "" {
		return errors.New("--listen is empty: the process serves no health")
	}
	if _, _, err := net.SplitHostPort(listen); err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, healthcheckTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+listen+"/readyz", http.NoBody)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	transport := &http.Transport{DisableKeepAlives: true} // without a proxy, whatever the environment says
	response, err := transport.RoundTrip(request)
	var timeout net.Error
	switch {
	case errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Errorf("no response at %s within %s", listen, healthcheckTimeout)
	case err != nil:
		return fmt.Errorf("request to %s: %w", listen, err)
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusOK {
		return nil
	}
	text, err := io.ReadAll(io.LimitReader(response.Body, maxReadiness))
	if err != nil {
		return fmt.Errorf("read the response of %s: %w", listen, err)
	}
	return fmt.Errorf("not ready: %s", unready(string(text), response.Status))
}

// unready lists the parts that are not ready, from a response of Health. Without any, it returns the
// status.
func unready(text, status string) string {
	var parts []string
	for line := range strings.Lines(text) {
		if part, found := strings.CutPrefix(strings.TrimSpace(line), "[-]"); found {
			name, reason, _ := strings.Cut(part, " not ready: ")
			parts = append(parts, name+" ("+reason+")")
		}
	}
	if len(parts) == 0 {
		return status
	}
	return strings.Join(parts, ", ")
}
