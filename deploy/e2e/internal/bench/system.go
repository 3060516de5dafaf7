package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/process"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/signature"
)

// startTimeout and stopTimeout bound the start and the end of one program.
const (
	startTimeout = 30 * time.Second
	stopTimeout  = 30 * time.Second
)

// system is NATS and some services, each a process.
type system struct {
	bin, dir string
	ports    *process.Ports
	nats     string
	programs []*program
	// signer and verifier are the flags for the signatures of wants.
	signer, verifier string
	// js is a client of NATS, and epoch the epoch of the stream of requests.
	js    jetstream.JetStream
	epoch int64
}

// program is a process with the URL of its health.
type program struct {
	*process.Process
	health string
}

// startSystem starts NATS and makes the streams.
func startSystem(ctx context.Context, bin string) (s *system, err error) {
	s = &system{bin: bin, ports: process.NewPorts()}
	if s.dir, err = os.MkdirTemp("", "curl-me-that-bench-"); err != nil {
		return nil, fmt.Errorf("make a folder for the streams: %w", err)
	}
	if err = s.startNATS(ctx); err == nil {
		err = s.connect(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, s.stop(ctx))
	}
	seed, keys, err := signature.WriteFiles(s.dir)
	if err != nil {
		return nil, errors.Join(err, s.stop(ctx))
	}
	s.signer, s.verifier = "--signing-key="+seed, "--trusted-keys="+keys
	return s, nil
}

// startNATS runs the version of NATS that go.mod names.
func (s *system) startNATS(ctx context.Context) error {
	path, err := filepath.Abs(filepath.Join(".cache", "bench", "nats-server"))
	if err != nil {
		return fmt.Errorf("find the checkout: %w", err)
	}
	build := exec.CommandContext(ctx, "go", "build", "-o", path, "github.com/nats-io/nats-server/v2")
	if text, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build nats-server: %w: %s", err, text)
	}
	client, errClient := s.ports.Free()
	monitor, errMonitor := s.ports.Free()
	file := filepath.Join(s.dir, "nats.conf")
	config := fmt.Sprintf("listen: %q\nhttp: %q\nmax_payload: 2MB\njetstream { store_dir: %q }\n", client, monitor,
		s.streams())
	if err := errors.Join(errClient, errMonitor, os.WriteFile(file, []byte(config), 0o600)); err != nil {
		return fmt.Errorf("configure NATS: %w", err)
	}
	s.nats = "nats://" + client
	return s.start(ctx, "nats", path, "http://"+monitor+"/healthz", "--config", file)
}

// streams is the folder of the streams.
func (s *system) streams() string { return filepath.Join(s.dir, "streams") }

func (s *system) connect(ctx context.Context) error {
	nc, err := nats.Connect(s.nats, nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
	if err != nil {
		return fmt.Errorf("connect to NATS: %w", err)
	}
	if s.js, err = jetstream.New(nc); err != nil {
		return fmt.Errorf("use JetStream: %w", err)
	}
	s.epoch, err = pipeline.Ensure(ctx, s.js, pipeline.Topology{})
	return err
}

// start runs a program and waits until it is ready. The program inherits the environment, so that
// it can be tuned.
func (s *system) start(ctx context.Context, name, path, health string, args ...string) error {
	p, err := process.Start(process.Program{Name: name, Path: path, Args: args, Env: os.Environ()})
	if err != nil {
		return err
	}
	started := &program{Process: p, health: health}
	s.programs = append(s.programs, started)
	return started.ready(ctx)
}

// service starts watcher, fetcher or writer.
func (s *system) service(ctx context.Context, name string, args ...string) error {
	address, err := s.ports.Free()
	if err != nil {
		return err
	}
	args = append([]string{"--nats-url=" + s.nats, "--listen=" + address}, args...)
	return s.start(ctx, name, filepath.Join(s.bin, name), "http://"+address+"/readyz", args...)
}

// fetcher starts one that may reach this machine.
func (s *system) fetcher(ctx context.Context, args ...string) error {
	return s.service(ctx, "fetcher", append(args, process.AllowLoopback)...)
}

func (p *program) ready(ctx context.Context) error {
	return await(ctx, p.Name+" is ready", startTimeout, func() (bool, error) {
		if !p.Running() {
			return false, fmt.Errorf("%s ended, its last line: %s", p.Name, p.Log.Last())
		}
		return process.Ready(ctx, p.health) == nil, nil
	})
}

// stopped stops a program if it runs, also after ctx was cancelled.
func (p *program) stopped(ctx context.Context) error {
	if !p.Running() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	if code, err := p.Stop(ctx); err != nil || code > 0 {
		return fmt.Errorf("stop %s: exit code %d, %w, its last line: %s", p.Name, code, err, p.Log.Last())
	}
	return nil
}

// err reports a program that ended by itself.
func (s *system) err() error {
	for _, p := range s.programs {
		if !p.Running() {
			return fmt.Errorf("%s ended, its last line: %s", p.Name, p.Log.Last())
		}
	}
	return nil
}

// remove stops all programs of a name.
func (s *system) remove(ctx context.Context, name string) (err error) {
	s.programs = slices.DeleteFunc(s.programs, func(p *program) bool {
		if p.Name == name {
			err = errors.Join(err, p.stopped(ctx))
		}
		return p.Name == name
	})
	return err
}

// restart stops a program, calls meanwhile, and starts it with the same arguments.
func (s *system) restart(ctx context.Context, name string, meanwhile func() error) error {
	p := s.programs[slices.IndexFunc(s.programs, func(p *program) bool { return p.Name == name })]
	if err := p.stopped(ctx); err != nil {
		return err
	}
	if err := errors.Join(meanwhile(), p.Again()); err != nil {
		return err
	}
	return p.ready(ctx)
}

// used returns the usage of all programs.
func (s *system) used() (usages, error) {
	used := usages{}
	for _, p := range s.programs {
		if err := used.add(p.Name, p.PID()); err != nil {
			return nil, errors.Join(err, s.err())
		}
	}
	return used, nil
}

// stop stops all programs, NATS last, and removes their data.
func (s *system) stop(ctx context.Context) error {
	if s.js != nil {
		s.js.Conn().Close()
	}
	var errs []error
	for _, p := range slices.Backward(s.programs) {
		errs = append(errs, p.stopped(ctx))
	}
	return errors.Join(append(errs, os.RemoveAll(s.dir))...)
}
