package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/process"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/signature"
)

// startTimeout and stopTimeout limit the start and the stop of a program.
const (
	startTimeout = 30 * time.Second
	stopTimeout  = 30 * time.Second
)

// system is NATS and some services, each as a process.
type system struct {
	bin, dir string
	ports    process.Ports
	nats     string
	programs []*process.Process
	// signer and verifier are the flags for the signatures of wants.
	signer, verifier string
	// js is a client of NATS, and epoch the epoch of CURL_REQUESTS.
	js    jetstream.JetStream
	epoch int64
}

// init starts NATS and creates the streams.
func (s *system) init(ctx context.Context, bin string) {
	s.bin = bin
	s.dir = must(os.MkdirTemp("", "curl-me-that-bench-"))
	s.startNATS(ctx)
	nc := must(nats.Connect(s.nats, nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond)))
	s.js = must(jetstream.New(nc))
	s.epoch = must(pipeline.Ensure(ctx, s.js, pipeline.Topology{}))
	seed, keys, err := signature.WriteFiles(s.dir)
	check(err)
	s.signer, s.verifier = "--signing-key="+seed, "--trusted-keys="+keys
}

// startNATS starts the version of NATS in go.mod.
func (s *system) startNATS(ctx context.Context) {
	path := must(filepath.Abs(filepath.Join(".cache", "bench", "nats-server")))
	build := exec.CommandContext(ctx, "go", "build", "-o", path, "github.com/nats-io/nats-server/v2")
	if text, err := build.CombinedOutput(); err != nil {
		check(fmt.Errorf("build nats-server: %w: %s", err, text))
	}
	client, monitor := must(s.ports.Free()), must(s.ports.Free())
	file := filepath.Join(s.dir, "nats.conf")
	config := fmt.Sprintf("listen: %q\nhttp: %q\nmax_payload: 2MB\njetstream { store_dir: %q }\n", client, monitor,
		filepath.Join(s.dir, "streams"))
	check(os.WriteFile(file, []byte(config), 0o600))
	s.nats = "nats://" + client
	s.start(ctx, "nats", path, "http://"+monitor+"/healthz", "--config", file)
}

// start runs a program and waits until it is ready. The program inherits the environment, so that
// it can be tuned.
func (s *system) start(ctx context.Context, name, path, health string, args ...string) {
	p := must(process.Start(process.Program{Name: name, Path: path, Args: args, Health: health, Env: os.Environ()}))
	s.programs = append(s.programs, p)
	awaitReady(ctx, p)
}

// service starts a watcher, fetcher or writer.
func (s *system) service(ctx context.Context, name string, args ...string) {
	address := must(s.ports.Free())
	args = append([]string{"--nats-url=" + s.nats, "--listen=" + address}, args...)
	s.start(ctx, name, filepath.Join(s.bin, name), "http://"+address+"/readyz", args...)
}

// fetcher starts a fetcher that may connect to this machine.
func (s *system) fetcher(ctx context.Context, args ...string) {
	s.service(ctx, "fetcher", append(args, process.AllowLoopback)...)
}

func awaitReady(ctx context.Context, p *process.Process) {
	mustAwait(ctx, p.Name+" is ready", startTimeout, func() bool {
		check(p.Ended())
		return p.Ready(ctx) == nil
	})
}

// stop stops a program if it runs, even after ctx was cancelled.
func stop(ctx context.Context, p *process.Process) error {
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

// check fails if a program has exited.
func (s *system) check() {
	for _, p := range s.programs {
		check(p.Ended())
	}
}

// count counts messages of a kind from now on.
func (s *system) count(kind pipeline.Kind) *atomic.Int64 {
	n := &atomic.Int64{}
	messages := must(s.js.Conn().Subscribe(kind.All(), func(*nats.Msg) { n.Add(1) }))
	check(messages.SetPendingLimits(-1, -1))
	check(s.js.Conn().Flush())
	return n
}

// remove stops all programs with a name.
func (s *system) remove(ctx context.Context, name string) {
	s.programs = slices.DeleteFunc(s.programs, func(p *process.Process) bool {
		if p.Name == name {
			check(stop(ctx, p))
		}
		return p.Name == name
	})
}

// used returns the usage of all programs.
func (s *system) used() usages {
	s.check()
	used := usages{}
	for _, p := range s.programs {
		used.add(p.Name, p.PID())
	}
	return used
}

// stop stops all programs, NATS last, and removes their data. Call it by defer: it keeps an earlier failure.
func (s *system) stop(ctx context.Context) {
	errs := []error{failed(recover())}
	if s.js != nil {
		s.js.Conn().Close()
	}
	for _, p := range slices.Backward(s.programs) {
		errs = append(errs, stop(ctx, p))
	}
	check(errors.Join(append(errs, os.RemoveAll(s.dir))...))
}
