// Package system runs what the benchmark measures: the three services and NATS,
// each as a process of its own.
package system

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/process"
)

// readyTimeout bounds the start of one program.
const readyTimeout = 30 * time.Second

// Options say how to run the system.
type Options struct {
	// Bin is the folder with the services.
	Bin string
	// Dir is for the streams and the logs.
	Dir string
	// Namespace is the one that the watcher watches.
	Namespace string
}

// System runs. It is not safe for concurrent use.
type System struct {
	options Options
	broker  *broker
	watcher *service
	fetcher *service
	writer  *service
}

// service is one of ours.
type service struct {
	*process.Process
	health string
}

// Start starts NATS and the services, and returns when all of them are ready.
// On an error, what was started is stopped.
func Start(ctx context.Context, o Options) (*System, error) {
	s := &System{options: o}
	if err := s.startAll(ctx); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

// startAll lets the fetcher do as many GETs at a time from the one server that
// there is as it may do in all.
func (s *System) startAll(ctx context.Context) (err error) {
	if s.broker, err = startBroker(ctx, s.options.Dir); err != nil {
		return err
	}
	if err = s.StartWatcher(s.options.Namespace); err != nil {
		return err
	}
	if s.fetcher, err = s.start("fetcher", "--allow-cidr=127.0.0.0/8,::1/128", "--per-host=1024", "--namespace-share=1"); err != nil {
		return err
	}
	if s.writer, err = s.start("writer"); err != nil {
		return err
	}
	for _, one := range []*service{s.watcher, s.fetcher, s.writer} {
		if err = one.ready(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (s *System) start(name string, args ...string) (*service, error) {
	addresses, err := freeAddresses(1)
	if err != nil {
		return nil, err
	}
	args = append(args, "--nats-url=nats://"+s.broker.address, "--listen="+addresses[0])
	p, err := process.Start(process.Options{
		Name: name, Path: filepath.Join(s.options.Bin, name), Args: args, LogDir: s.options.Dir,
	})
	if err != nil {
		return nil, err
	}
	return &service{Process: p, health: "http://" + addresses[0] + "/readyz"}, nil
}

func (s *service) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	return s.AwaitOK(ctx, s.health)
}

// StartWatcher starts the watcher, which must not run, and does not wait until
// it is ready.
func (s *System) StartWatcher(namespace string) (err error) {
	s.watcher, err = s.start("watcher", "--namespaces="+namespace)
	return err
}

// AwaitWatcher waits until the watcher is ready: it has seen all objects.
func (s *System) AwaitWatcher(ctx context.Context) error { return s.watcher.ready(ctx) }

// StopWatcher stops the watcher only.
func (s *System) StopWatcher() error {
	if s.watcher == nil {
		return nil
	}
	err := s.watcher.Stop()
	s.watcher = nil
	return err
}

// Err says that a program has ended by itself; nil while all run.
func (s *System) Err() error {
	for _, p := range s.running() {
		if err := p.Err(); err != nil {
			return err
		}
	}
	return nil
}

// Usage returns what each program has used, by name.
func (s *System) Usage() (map[string]process.Usage, error) {
	usage := map[string]process.Usage{}
	for _, p := range s.running() {
		u, err := p.Usage()
		if err != nil {
			return nil, err
		}
		usage[p.Name()] = u
	}
	return usage, nil
}

// Stop stops all programs, NATS last.
func (s *System) Stop() error {
	var errs []error
	for _, p := range s.running() {
		if err := p.Stop(); err != nil {
			errs = append(errs, fmt.Errorf("logs are in %s: %w", s.options.Dir, err))
		}
	}
	s.watcher, s.fetcher, s.writer, s.broker = nil, nil, nil, nil
	return errors.Join(errs...)
}

// running returns the programs, users of NATS first.
func (s *System) running() []*process.Process {
	var list []*process.Process
	for _, one := range []*service{s.watcher, s.fetcher, s.writer} {
		if one != nil {
			list = append(list, one.Process)
		}
	}
	if s.broker != nil {
		list = append(list, s.broker.Process)
	}
	return list
}
