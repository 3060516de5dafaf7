// Package bench measures how fast and at what cost the assembled system fills and refreshes ConfigMaps, and the
// effect of a slow host. The baselines from the same run are patches in a loop, and the slots of a host. Each spec
// prints its figures as JSON.
package bench_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/procfs"
	"golang.org/x/sync/errgroup"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/process"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

func TestBench(t *testing.T) { world.RunWithin(t, "Bench", time.Hour) }

var (
	env *world.Environment
	// broker is the program of the version of NATS in go.mod.
	broker string
)

var _ = BeforeSuite(func(ctx SpecContext) {
	env = world.Open()
	broker = filepath.Join(GinkgoT().TempDir(), "nats-server")
	build := exec.CommandContext(ctx, "go", "build", "-o", broker, "github.com/nats-io/nats-server/v2")
	out, err := build.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), "%s", out)
})

// printed prints figures as a line of JSON.
func printed(figures any) {
	GinkgoHelper()
	fmt.Printf("\n%s\n", suitetest.Must(json.Marshal(figures)))
}

// system is NATS and some services, each as a process.
type system struct {
	nats     string
	programs []*process.Process
	// js is a client of NATS, and epoch the epoch of CURL_REQUESTS.
	js    jetstream.JetStream
	epoch int64
}

// start starts NATS and creates the streams.
func start(ctx context.Context) *system {
	GinkgoHelper()
	dir := GinkgoT().TempDir()
	file := filepath.Join(dir, "nats.conf")
	client, monitor := env.FreeAddress(), env.FreeAddress()
	Expect(os.WriteFile(file, fmt.Appendf(nil,
		"listen: %q\nhttp: %q\nmax_payload: 2MB\njetstream { store_dir: %q }\n", client, monitor, dir), 0o600)).To(Succeed())
	s := &system{nats: "nats://" + client}
	s.run(ctx, "nats", broker, "http://"+monitor+"/healthz", "--config", file)
	conn := suitetest.Must(nats.Connect(s.nats, nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond)))
	DeferCleanup(conn.Close)
	s.js = suitetest.Must(jetstream.New(conn))
	s.epoch = suitetest.Must(pipeline.Ensure(ctx, s.js, pipeline.Topology{}))
	return s
}

// run runs a program until the end of the spec, and waits until it is ready. It inherits the environment, so that
// it can be tuned.
func (s *system) run(ctx context.Context, name, path, health string, args ...string) *process.Process {
	GinkgoHelper()
	p := suitetest.Must(process.Start(process.Program{
		Name: name, Path: path, Args: args, Health: health, Env: os.Environ(),
	}))
	DeferCleanup(func() { _ = p.Kill() }) // it may have been stopped
	s.programs = append(s.programs, p)
	Eventually(ctx, p.Ready).Should(Succeed(), name)
	return p
}

// service runs a watcher, fetcher or writer.
func (s *system) service(ctx context.Context, name string, args ...string) *process.Process {
	GinkgoHelper()
	address := env.FreeAddress()
	args = append([]string{"--nats-url=" + s.nats, "--listen=" + address}, args...)
	return s.run(ctx, name, env.Program(name), "http://"+address+"/readyz", args...)
}

// fetcher runs a fetcher that may connect to this machine.
func (s *system) fetcher(ctx context.Context, args ...string) {
	GinkgoHelper()
	s.service(ctx, world.Fetcher, append(args, process.AllowLoopback)...)
}

// count counts messages of a kind from now on.
func (s *system) count(kind pipeline.Kind) *atomic.Int64 {
	GinkgoHelper()
	n := &atomic.Int64{}
	messages := suitetest.Must(s.js.Conn().Subscribe(kind.All(), func(*nats.Msg) { n.Add(1) }))
	Expect(messages.SetPendingLimits(-1, -1)).To(Succeed())
	Expect(s.js.Conn().Flush()).To(Succeed())
	return n
}

// usages maps the names of programs to their CPU time since the start, in seconds. Without /proc, which only Linux has,
// all figures of CPU time are missing.
type usages map[string]float64

func (u usages) add(name string, pid int) {
	GinkgoHelper()
	if p, err := procfs.NewProc(pid); err == nil {
		u[name] += suitetest.Must(p.Stat()).CPUTime()
	}
}

// used returns the usage of all programs, which must still run.
func (s *system) used() usages {
	GinkgoHelper()
	used := usages{}
	for _, p := range s.programs {
		Expect(p.Ended()).To(Succeed())
		used.add(p.Name, p.PID())
	}
	return used
}

// cpuSince returns the milliseconds of CPU time per item for each program, given the number of items. A program
// that was not in before started at zero.
func (u usages) cpuSince(before usages, count int) map[string]float64 {
	cpu := map[string]float64{}
	for name, used := range u {
		cpu[name] = 1000 * (used - before[name]) / float64(max(count, 1))
	}
	return cpu
}

// inFlight is the number of concurrent requests. More only increase the latency of an API server on two cores.
const inFlight = 32

// inParallel calls do for 0 to count-1, inFlight at a time.
func inParallel(count int, do func(n int) error) {
	GinkgoHelper()
	var group errgroup.Group
	group.SetLimit(inFlight)
	for n := range count {
		group.Go(func() error { return do(n) })
	}
	Expect(group.Wait()).To(Succeed())
}
