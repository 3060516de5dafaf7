// Package hooks fetches wants when a web server says that something changed. It never interprets a payload.
package hooks

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"sigs.k8s.io/yaml"

	"github.com/kv8s/curl-me-that/proto/process"
	"github.com/kv8s/curl-me-that/proto/process/metric"
	"github.com/kv8s/curl-me-that/proto/weburl"
)

const (
	// every is the minimum time between two refetches by one hook, and timeout the maximum time of one.
	every, timeout = 10 * time.Second, 20 * time.Second
	// maxBody is the maximum size of a payload in bytes.
	maxBody = 1 << 20
)

// outcome is the label of a request in the metrics.
type outcome string

const (
	accepted     outcome = "accepted"
	merged       outcome = "merged"
	unmatched    outcome = "unmatched"
	unauthorized outcome = "unauthorized" // or an unknown hook
	oversized    outcome = "oversized"
	incomplete   outcome = "incomplete"
	malformed    outcome = "malformed"
	unavailable  outcome = "unavailable"
)

// statuses has the HTTP status of each outcome.
var statuses = map[outcome]int{
	accepted: http.StatusAccepted, merged: http.StatusAccepted, unmatched: http.StatusNoContent,
	unauthorized: http.StatusUnauthorized, oversized: http.StatusRequestEntityTooLarge,
	incomplete: http.StatusBadRequest, unavailable: http.StatusServiceUnavailable,
}

// Refetch requests the fetch of all wants whose URL begins with a prefix, and returns their number. If they were
// requested with that id before, it requests nothing and returns already.
type Refetch func(ctx context.Context, prefix string, id int64) (matched int, already bool, err error)

// Server serves hooks.
type Server struct {
	refetch  Refetch
	log      zerolog.Logger
	hooks    atomic.Pointer[map[string]Hook]
	requests *prometheus.CounterVec
	keys     prometheus.Counter

	mu   sync.Mutex
	runs map[string]run
	// begun has the connections with a request that no handler has got.
	begun map[string]bool
}

// run is the time at which the next refetch by a hook may begin, and whether one is planned.
type run struct {
	next    time.Time
	planned bool
}

// New returns a server of hooks with registered metrics.
func New(hooks map[string]Hook, refetch Refetch, log zerolog.Logger, metrics *metric.Set) *Server {
	s := &Server{
		refetch: refetch, log: log, runs: map[string]run{}, begun: map[string]bool{},
		requests: metrics.Counters("requests_total", "Requests to the receiver of hooks.", metric.Labeled("outcome", accepted,
			merged, unmatched, unauthorized, oversized, incomplete, malformed, unavailable)),
		keys: metrics.Counter("keys_total", "Keys whose fetch a hook requested."),
	}
	s.Use(hooks)
	return s
}

// Use replaces the hooks.
func (s *Server) Use(hooks map[string]Hook) { s.hooks.Store(&hooks) }

// Serve serves hooks on a listener until ctx is done.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	return process.Serve(ctx, listener, s, func(server *http.Server) {
		server.ConnState = func(c net.Conn, state http.ConnState) { s.track(c.RemoteAddr().String(), state) }
	})
}

// track counts requests that are too broken for a handler.
func (s *Server) track(address string, state http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if state == http.StateClosed && s.begun[address] {
		s.requests.WithLabelValues(string(malformed)).Inc()
	}
	delete(s.begun, address)
	if state == http.StateActive {
		s.begun[address] = true
	}
}

// ServeHTTP serves POST /hooks/NAME.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.track(r.RemoteAddr, http.StateIdle)
	result := unauthorized
	name, isPath := strings.CutPrefix(r.URL.Path, "/hooks/")
	if hook, found := (*s.hooks.Load())[name]; found && isPath && r.Method == http.MethodPost {
		if result = hook.authenticate(w, r); result == accepted {
			result = s.accept(hook) //nolint:contextcheck // the refetch outlives the request
		}
	}
	s.requests.WithLabelValues(string(result)).Inc()
	w.WriteHeader(statuses[result])
}

// accept refetches, unless it is too early. Then the hook is merged into the next refetch.
func (s *Server) accept(hook Hook) outcome {
	s.mu.Lock()
	now, state := time.Now(), s.runs[hook.Name]
	early := state.next.After(now)
	if early {
		s.plan(hook, state.next)
	} else {
		s.runs[hook.Name] = run{next: now.Add(every), planned: state.planned}
	}
	s.mu.Unlock()
	if early {
		return merged
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout) // not that of a sender who may leave
	defer cancel()
	window := now.Truncate(every)
	matched, already, err := s.refetch(ctx, hook.URL, window.Unix())
	if err != nil || already { // by another replica, perhaps before the change
		s.mu.Lock()
		defer s.mu.Unlock()
		if err == nil {
			s.plan(hook, window.Add(every))
			return merged
		}
		s.log.Error().Err(err).Str("hook", hook.Name).Msg("cannot refetch, trying again in 10 s")
		s.plan(hook, time.Now().Add(every))
		return unavailable
	}
	if matched == 0 {
		return unmatched
	}
	s.keys.Add(float64(matched))
	s.log.Info().Str("hook", hook.Name).Int("keys", matched).Msg("refetching")
	return accepted
}

// plan plans the next refetch by a hook, unless one is planned. It needs the lock.
func (s *Server) plan(hook Hook, at time.Time) {
	if !s.runs[hook.Name].planned {
		s.runs[hook.Name] = run{next: at, planned: true}
		time.AfterFunc(time.Until(at), func() {
			s.mu.Lock()
			s.runs[hook.Name] = run{}
			s.mu.Unlock()
			if hook, found := (*s.hooks.Load())[hook.Name]; found {
				s.accept(hook)
			}
		})
	}
}

const (
	// minSecret is the minimum length of a secret in bytes.
	minSecret = 16
	// maxSkew is the maximum age of a request that has its time, as Standard Webhooks recommends.
	maxSkew = 5 * time.Minute
)

// Hook is an entry of the file.
type Hook struct {
	// Name is the last part of the path /hooks/NAME.
	Name string `json:"name"`
	// URL is the prefix of the URLs to fetch.
	URL string `json:"url"`
	// Kind says how the sender proves that it knows the secret: hmac, standard, gitlab or bearer.
	Kind string `json:"kind"`
	// SecretFile holds the secret. It is relative to the folder of the file.
	SecretFile string `json:"secretFile"`

	secret []byte
}

// Load reads the hooks of a file by name, with their secrets.
func Load(path string) (map[string]Hook, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read hooks: %w", err)
	}
	var file struct {
		Hooks []Hook `json:"hooks"`
	}
	if err := yaml.UnmarshalStrict(content, &file); err != nil {
		return nil, fmt.Errorf("read hooks in %s: %w", path, err)
	}
	all := map[string]Hook{}
	for i, hook := range file.Hooks {
		err = hook.readSecret(filepath.Dir(path))
		if err = cmp.Or(err, hook.mistake(all)); err != nil {
			return nil, fmt.Errorf("hook %d (%q) in %s: %w", i+1, hook.Name, path, err)
		}
		all[hook.Name] = hook
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s has no hooks", path)
	}
	return all, nil
}

// readSecret reads the secret.
func (h *Hook) readSecret(dir string) (err error) {
	if h.secret, err = os.ReadFile(filepath.Join(dir, h.SecretFile)); err != nil {
		return err
	}
	h.secret = bytes.TrimRight(h.secret, "\r\n")
	encoded, isKey := strings.CutPrefix(string(h.secret), "whsec_")
	if isKey != (h.Kind == "standard") {
		return errors.New("a secret that begins with whsec_ needs kind standard, and kind standard such a secret")
	} else if isKey {
		if h.secret, err = base64.StdEncoding.DecodeString(encoded); err != nil {
			return fmt.Errorf("the secret after whsec_: %w", err)
		}
	}
	return nil
}

// mistake returns why the hook cannot be used next to the others.
func (h Hook) mistake(others map[string]Hook) error {
	_, wrong := weburl.Canonical(h.URL, "https")
	_, twice := others[h.Name]
	switch {
	case h.Name == "" || strings.ContainsAny(h.Name, "/%"):
		return errors.New("the name is empty or has a / or %")
	case twice:
		return errors.New("the name appears twice")
	case wrong != "" || strings.ContainsAny(h.URL, "?@"):
		return fmt.Errorf("url is not the start of a URL without credentials and query %s", wrong)
	case !slices.Contains([]string{"hmac", "standard", "gitlab", "bearer"}, h.Kind):
		return errors.New("kind is not hmac, standard, gitlab or bearer")
	case len(h.secret) < minSecret:
		return fmt.Errorf("the secret has fewer than %d bytes", minSecret)
	}
	return nil
}

// authenticate returns accepted if the sender of a request knows the secret. It reads the body only for its MAC.
func (h Hook) authenticate(w http.ResponseWriter, r *http.Request) outcome {
	if r.ContentLength > maxBody {
		return oversized
	}
	var before string
	var sums [][]byte
	switch h.Kind {
	case "gitlab":
		return tokens(single(r.Header, "X-Gitlab-Token"), h.secret)
	case "bearer":
		return tokens(single(r.Header, "Authorization"), append([]byte("Bearer "), h.secret...))
	case "standard":
		before, sums = standard(r.Header)
	default:
		sums = signature(r.Header)
	}
	if len(sums) == 0 {
		return unauthorized
	}
	hash := hmac.New(sha256.New, h.secret)
	hash.Write([]byte(before))
	if n, err := io.Copy(hash, http.MaxBytesReader(w, r.Body, maxBody)); n >= maxBody && err != nil {
		return oversized
	} else if err != nil {
		return incomplete
	}
	want := hash.Sum(nil)
	if slices.ContainsFunc(sums, func(sum []byte) bool { return hmac.Equal(sum, want) }) {
		return accepted
	}
	return unauthorized
}

// signature returns the HMAC-SHA256 of a body as GitHub, Gitea (with or without GitHub's header) and Bitbucket send it.
func signature(header http.Header) [][]byte {
	for _, name := range []string{"X-Hub-Signature-256", "X-Gitea-Signature", "X-Hub-Signature"} {
		if len(header.Values(name)) > 0 {
			sum, err := hex.DecodeString(strings.TrimPrefix(single(header, name), "sha256="))
			if err != nil {
				return nil
			}
			return [][]byte{sum}
		}
	}
	return nil
}

// standard returns the signatures of Standard Webhooks, one for each current key of the sender, and the signed text
// before the body.
func standard(header http.Header) (before string, sums [][]byte) {
	id, at := single(header, "Webhook-Id"), single(header, "Webhook-Timestamp")
	if seconds, err := strconv.ParseInt(at, 10, 64); err != nil || time.Since(time.Unix(seconds, 0)).Abs() > maxSkew {
		return "", nil
	}
	for one := range strings.FieldsSeq(single(header, "Webhook-Signature")) {
		if sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(one, "v1,")); err == nil {
			sums = append(sums, sum)
		}
	}
	return id + "." + at + ".", sums
}

// single returns the value of a header that appears once.
func single(header http.Header, name string) string {
	if values := header.Values(name); len(values) == 1 {
		return values[0]
	}
	return ""
}

// tokens compares digests, so that the time reveals neither the beginning nor the length of the secret.
func tokens(got string, secret []byte) outcome {
	a, b := sha256.Sum256([]byte(got)), sha256.Sum256(secret)
	if subtle.ConstantTimeCompare(a[:], b[:]) == 1 {
		return accepted
	}
	return unauthorized
}
