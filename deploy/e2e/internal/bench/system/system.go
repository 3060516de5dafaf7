// Package system runs what the benchmark measures: the three services and NATS,
// each as a process of its own.
package system

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/keys"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/usage"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/process"
	"github.com/kv8s/curl-me-that/proto/signature"
)

// Options configure the system.
type Options struct {
	// Bin is the folder with the services.
	Bin string
	// Namespace is the one that the watcher watches at first, or several,
	// separated by commas.
	Namespace string
	// Scrape is how often the metrics of each service are read, as Prometheus
	// does; 0: never.
	Scrape time.Duration
	// Profiles is the folder for what Profile writes; empty: the programs serve no
	// profiles.
	Profiles string
	// Allocations lets the programs serve what Allocated reads.
	Allocations bool
	// Unsigned leaves wants without signatures, so that the writer reads each
	// object before it writes, or takes all wants if it is older than them.
	Unsigned bool
	// Accounts gives NATS the shipped accounts, and each service its identity; else
	// all are users of one account that may do everything.
	Accounts bool
	// Writer are flags of the writer beside the usual ones.
	Writer []string
	// Limits leaves fetchers their limits by host and namespace; else each may do as
	// many GETs at a time from the one server that there is as it may do in all.
	Limits bool
	// Fetchers is how many there are; 0: one.
	Fetchers int
	// Replicas is how many servers NATS has, each with a copy of each stream; 0: one.
	Replicas int
}

// System runs. It is not safe for concurrent use.
type System struct {
	options Options
	// dir has the streams, the configuration and the keys.
	dir   string
	ports *process.Ports
	// addresses where the servers of NATS take connections.
	addresses         []string
	watcher, writer   *program
	fetchers, brokers []*program
	// signing and trusting are the flags of watcher and writer about signatures.
	signing, trusting []string
}

// Start starts NATS and the services, and returns when all of them are ready.
// On an error, what was started is stopped.
func Start(ctx context.Context, o Options) (*System, error) {
	return begin(ctx, o, (*System).startAll)
}

// StartFetchers starts NATS and the fetchers alone, which are ready once there are
// streams.
func StartFetchers(ctx context.Context, o Options) (*System, error) {
	return begin(ctx, o, (*System).startFetchers)
}

// StartWriter starts NATS with its streams and a writer alone.
func StartWriter(ctx context.Context, o Options) (*System, error) {
	return begin(ctx, o, (*System).startWriter)
}

// StartNATS starts NATS without accounts and without services.
func StartNATS(ctx context.Context) (*System, error) {
	return begin(ctx, Options{}, func(*System, context.Context) error { return nil })
}

// begin makes a folder, starts NATS, and calls start. On an error, what was started
// is stopped.
func begin(ctx context.Context, o Options, start func(*System, context.Context) error) (*System, error) {
	dir, err := os.MkdirTemp("", "curl-me-that-bench-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for the streams: %w", err)
	}
	s := &System{options: o, dir: dir, ports: process.NewPorts()}
	if err = s.startBrokers(ctx); err == nil {
		err = start(s, ctx)
	}
	if err != nil {
		return nil, errors.Join(err, s.Stop(ctx))
	}
	return s, nil
}

func (s *System) startWriter(ctx context.Context) error {
	publisher, err := keys.NewPublisher(ctx, s.NATS())
	if err != nil {
		return err
	}
	publisher.Close()
	if s.writer, err = s.service(ctx, "writer"); err != nil {
		return err
	}
	return s.writer.ready(ctx)
}

// NATS is the URL for clients.
func (s *System) NATS() string { return "nats://" + strings.Join(s.addresses, ",nats://") }

func (s *System) startAll(ctx context.Context) (err error) {
	if s.options.Accounts {
		if err = s.curlctl(ctx, "setup", "--nats-url", s.NATS(), "--nats-nkey", s.seed("setup")); err != nil {
			return err
		}
	}
	if !s.options.Unsigned {
		seed, keys, err := signature.WriteFiles(s.dir)
		if err != nil {
			return err
		}
		s.signing, s.trusting = []string{"--signing-key=" + seed}, []string{"--trusted-keys=" + keys}
	}
	if err = s.StartWatcher(ctx, s.options.Namespace); err != nil {
		return err
	}
	if err = s.startFetchers(ctx); err != nil {
		return err
	}
	if s.writer, err = s.service(ctx, "writer", append(s.trusting, s.options.Writer...)...); err != nil {
		return err
	}
	for _, p := range s.running() {
		if err = p.ready(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (s *System) startFetchers(ctx context.Context) error {
	flags := []string{process.AllowLoopback}
	if !s.options.Limits {
		flags = append(flags, "--per-host=1024", "--namespace-share=1")
	}
	for range max(1, s.options.Fetchers) {
		fetcher, err := s.service(ctx, "fetcher", slices.Concat(flags, s.trusting)...)
		if err != nil {
			return err
		}
		s.fetchers = append(s.fetchers, fetcher)
	}
	return nil
}

func (s *System) service(ctx context.Context, name string, args ...string) (*program, error) {
	address, err := s.ports.Free()
	if err != nil {
		return nil, err
	}
	args = append(slices.Clip(args), "--nats-url="+s.NATS(), "--listen="+address)
	if s.options.Accounts {
		args = append(args, "--nats-nkey="+s.seed(name))
	}
	if s.options.Profiles != "" || s.options.Allocations {
		args = append(args, "--profiling")
	}
	p, err := launch(name, filepath.Join(s.options.Bin, name), "http://"+address+"/readyz", args...)
	if err == nil {
		p.profiles = "http://" + address + "/debug/pprof/"
	}
	if err == nil && s.options.Scrape > 0 {
		p.scrape(ctx, "http://"+address+"/metrics", s.options.Scrape)
	}
	return p, err
}

// StartWatcher starts the watcher, which must not run, and does not wait until
// it is ready.
func (s *System) StartWatcher(ctx context.Context, namespace string) (err error) {
	args := append([]string{"--namespaces=" + namespace}, s.signing...)
	if s.options.Accounts { // curlctl has made the streams
		args = append(args, "--manage-streams=off")
	}
	s.watcher, err = s.service(ctx, "watcher", args...)
	return err
}

// AwaitWatcher waits until the watcher is ready: it has seen all objects.
func (s *System) AwaitWatcher(ctx context.Context) error { return s.watcher.ready(ctx) }

// StopWatcher stops the watcher only, if it runs.
func (s *System) StopWatcher(ctx context.Context) error {
	if s.watcher == nil {
		return nil
	}
	err := s.watcher.end(ctx)
	s.watcher = nil
	return err
}

// StopFetchers stops the fetchers only.
func (s *System) StopFetchers(ctx context.Context) error {
	err := end(ctx, s.fetchers)
	s.fetchers = nil
	return err
}

// Err is about a program that has ended by itself; nil while all run.
func (s *System) Err() error {
	for _, p := range s.running() {
		if err := p.err(); err != nil {
			return err
		}
	}
	return nil
}

// Usage returns what each program has used, by name; of several fetchers or servers of
// NATS, what all have used. The error wraps usage.ErrUnknown where the operating system has no
// figures.
func (s *System) Usage() (map[string]usage.Usage, error) {
	used := map[string]usage.Usage{}
	for _, p := range s.running() {
		u, err := usage.Of(p.PID())
		if err != nil {
			return nil, errors.Join(err, p.err())
		}
		used[p.Name] = used[p.Name].Plus(u)
	}
	return used, nil
}

// Pin lets all programs run on these processors only.
func (s *System) Pin(processors ...int) error {
	for _, p := range s.running() {
		if err := usage.Pin(p.PID(), processors...); err != nil {
			return errors.Join(err, p.err())
		}
	}
	return nil
}

// Restart stops one of the programs, nats among them, calls meanwhile while it is
// away, and starts it as it was. It returns when the program is ready again.
func (s *System) Restart(ctx context.Context, name string, meanwhile func() error) error {
	for _, p := range s.running() {
		if p.Name != name {
			continue
		}
		if err := p.end(ctx); err != nil {
			return err
		}
		if err := meanwhile(); err != nil {
			return err
		}
		return p.again(ctx)
	}
	return fmt.Errorf("restart %s: it does not run", name)
}

// Streams is the folder of the streams.
func (s *System) Streams() string { return filepath.Join(s.dir, "streams") }

// Stop stops all programs, NATS last, and removes what they have stored.
func (s *System) Stop(ctx context.Context) error {
	err := end(ctx, s.running())
	s.watcher, s.fetchers, s.writer, s.brokers = nil, nil, nil, nil
	return errors.Join(err, os.RemoveAll(s.dir))
}

func end(ctx context.Context, programs []*program) error {
	var errs []error
	for _, p := range programs {
		errs = append(errs, p.end(ctx))
	}
	return errors.Join(errs...)
}

// running returns the programs, users of NATS first.
func (s *System) running() []*program {
	var list []*program
	for _, p := range slices.Concat([]*program{s.watcher}, s.fetchers, []*program{s.writer}, s.brokers) {
		if p != nil {
			list = append(list, p)
		}
	}
	return list
}
