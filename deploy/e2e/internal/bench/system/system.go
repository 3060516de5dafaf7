// Package system runs what the benchmark measures: the three services and NATS,
// each as a process of its own.
package system

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/usage"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/process"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/signature"
)

// Options configure the system.
type Options struct {
	// Bin is the folder with the services.
	Bin string
	// Dir is for the streams.
	Dir string
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
	// object before it writes, or believes all wants if it is older than them.
	Unsigned bool
	// Accounts gives NATS the shipped accounts, and each service its identity; else
	// all are users of one account that may do everything.
	Accounts bool
	// Writer are flags of the writer beside the usual ones.
	Writer []string
	// Fetcher are its flags; none: those of the benchmark, which let it do as
	// many GETs at a time from the one server that there is as it may do in all.
	Fetcher []string
	// Fetchers is how many there are; 0: one.
	Fetchers int
}

// System runs. It is not safe for concurrent use.
type System struct {
	options Options
	ports   *process.Ports
	// address where NATS takes connections.
	address                 string
	broker, watcher, writer *program
	fetchers                []*program
	// signing and trusting are the flags of watcher and writer about signatures.
	signing, trusting []string
}

// Start starts NATS and the services, and returns when all of them are ready.
// On an error, what was started is stopped.
func Start(ctx context.Context, o Options) (*System, error) {
	s := &System{options: o, ports: process.NewPorts()}
	if err := s.startAll(ctx); err != nil {
		return nil, errors.Join(err, s.Stop(ctx))
	}
	return s, nil
}

// StartFetchers starts NATS and the fetchers alone, which are ready once there are
// streams.
func StartFetchers(ctx context.Context, o Options) (*System, error) {
	s := &System{options: o, ports: process.NewPorts()}
	var err error
	if s.broker, s.address, err = startBroker(ctx, s.ports, s.options.Dir, false); err == nil {
		err = s.startFetchers(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, s.Stop(ctx))
	}
	return s, nil
}

// StartWriter starts NATS with its streams and a writer alone.
func StartWriter(ctx context.Context, o Options) (*System, error) {
	s := &System{options: o, ports: process.NewPorts()}
	if err := s.startWriter(ctx); err != nil {
		return nil, errors.Join(err, s.Stop(ctx))
	}
	return s, nil
}

func (s *System) startWriter(ctx context.Context) (err error) {
	if s.broker, s.address, err = startBroker(ctx, s.ports, s.options.Dir, false); err != nil {
		return err
	}
	nc, err := nats.Connect(s.NATS())
	if err != nil {
		return fmt.Errorf("connect to NATS: %w", err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return fmt.Errorf("use JetStream: %w", err)
	}
	if _, err := pipeline.Ensure(ctx, js, pipeline.Topology{}); err != nil {
		return err
	}
	if s.writer, err = s.service(ctx, "writer"); err != nil {
		return err
	}
	return s.writer.ready(ctx)
}

// NATS is the URL for clients.
func (s *System) NATS() string { return "nats://" + s.address }

func (s *System) startAll(ctx context.Context) (err error) {
	if s.options.Accounts {
		if err = s.identify(ctx); err != nil {
			return err
		}
	}
	if s.broker, s.address, err = startBroker(ctx, s.ports, s.options.Dir, s.options.Accounts); err != nil {
		return err
	}
	if s.options.Accounts {
		if err = s.curlctl(ctx, "setup", "--server", "nats://"+s.address, "--nkey", s.seed("setup")); err != nil {
			return err
		}
	}
	if !s.options.Unsigned {
		seed, keys, err := signature.WriteFiles(s.options.Dir)
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
	flags := s.options.Fetcher
	if flags == nil {
		flags = []string{"--allow-cidr=127.0.0.0/8,::1/128", "--per-host=1024", "--namespace-share=1"}
	}
	for range max(1, s.options.Fetchers) {
		fetcher, err := s.service(ctx, "fetcher", flags...)
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
	args = append(args, "--nats-url=nats://"+s.address, "--listen="+address)
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

// Err is about a program that has ended by itself; nil while all run.
func (s *System) Err() error {
	for _, p := range s.running() {
		if err := p.err(); err != nil {
			return err
		}
	}
	return nil
}

// Usage returns what each program has used, by name; of several fetchers, what all
// have used. The error wraps usage.ErrUnknown where the operating system has no
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
	programs := []**program{&s.watcher, &s.writer, &s.broker}
	for i := range s.fetchers {
		programs = append(programs, &s.fetchers[i])
	}
	for _, p := range programs {
		if *p == nil || (*p).Name != name {
			continue
		}
		if err := (*p).end(ctx); err != nil {
			return err
		}
		if err := meanwhile(); err != nil {
			return err
		}
		next, err := (*p).again(ctx)
		if err == nil {
			*p = next
		}
		return err
	}
	return fmt.Errorf("restart %s: it does not run", name)
}

// Stop stops all programs, NATS last.
func (s *System) Stop(ctx context.Context) error {
	var errs []error
	for _, p := range s.running() {
		errs = append(errs, p.end(ctx))
	}
	s.watcher, s.fetchers, s.writer, s.broker = nil, nil, nil, nil
	return errors.Join(errs...)
}

// running returns the programs, users of NATS first.
func (s *System) running() []*program {
	var list []*program
	for _, p := range slices.Concat([]*program{s.watcher}, s.fetchers, []*program{s.writer, s.broker}) {
		if p != nil {
			list = append(list, p)
		}
	}
	return list
}
