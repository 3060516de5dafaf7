package world

import (
	"context"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/process"
	"github.com/kv8s/curl-me-that/proto/suitetest"
)

// Service is one of the services as a process.
type Service struct {
	*process.Process
	// Address where it serves health and metrics.
	Address string
}

// readyTimeout is for a start on a machine that is busy with other tests.
const readyTimeout = 40 * time.Second

// Launch starts one more service with more flags.
func (w *World) Launch(ctx context.Context, name string, flags ...string) *Service {
	GinkgoHelper()
	address := w.FreeAddress()
	args := append(w.flags(ctx, name), "--listen="+address)
	args = append(args, w.options.Flags[name]...)
	program := process.Program{Name: name, Path: w.Program(name), Args: append(args, flags...), Env: w.options.Env}
	if by := w.options.ClocksOff[name]; by != 0 {
		program.Path, program.Env = w.offClock(ctx, name), append(program.Env, process.ClockOff(by))
	}
	p := suitetest.Must(process.Start(program))
	s := &Service{Process: p, Address: address}
	w.all = append(w.all, s)
	return s
}

// flags that a service has in every world.
func (w *World) flags(ctx context.Context, name string) []string {
	GinkgoHelper()
	flags := []string{}
	if name != Keeper {
		flags = append(flags, "--nats-url="+w.broker)
	}
	kubeconfig := w.Cluster.Kubeconfig
	if own := w.options.Kubeconfigs[name]; own != nil {
		kubeconfig = own(ctx, w.Namespace)
	}
	switch name {
	case Watcher:
		flags = append(flags, "--kubeconfig="+kubeconfig, "--namespaces="+strings.Join(w.namespaces(), ","),
			"--min-refresh=1s", "--signing-key="+w.signingKey)
		if w.options.AckWait > 0 {
			flags = append(flags, "--manage-streams=off")
		}
	case Fetcher: // it has no cluster at all
		flags = append(flags, process.AllowLoopback, "--min-refresh=1s", "--retry-base=200ms",
			"--trusted-keys="+w.trustedKeys)
	case Writer:
		flags = append(flags, "--kubeconfig="+kubeconfig, "--trusted-keys="+w.trustedKeys)
	case Keeper:
		flags = append(flags, "--kubeconfig="+kubeconfig, "--namespaces="+strings.Join(w.namespaces(), ","))
	}
	return flags
}

// Watcher is the watcher that the world began with.
func (w *World) Watcher() *Service { return w.services[Watcher] }

// Fetcher is the fetcher that the world began with.
func (w *World) Fetcher() *Service { return w.services[Fetcher] }

// Writer is the writer that the world began with.
func (w *World) Writer() *Service { return w.services[Writer] }

// Service returns the service of that name that the world began with.
func (w *World) Service(name string) *Service { return w.services[name] }

// EventuallyReady waits until the service reports that all its parts work.
func (s *Service) EventuallyReady(ctx context.Context) {
	GinkgoHelper()
	Eventually(ctx, func() error { return s.ready(ctx) }).WithTimeout(readyTimeout).Should(Succeed())
}

func (s *Service) ready(ctx context.Context) error {
	if !s.Running() {
		return StopTrying(fmt.Sprintf("%s has ended: %s", s.Name, s.Log.Last()))
	}
	return Ready(ctx, s.Address)
}

// Ready returns nil when the process that serves health at the address is
// ready, and else its answer.
func Ready(ctx context.Context, address string) error {
	return process.Ready(ctx, "http://"+address+"/readyz")
}

// Restart starts the service again after it has ended, and waits until it is
// ready.
func (s *Service) Restart(ctx context.Context) {
	GinkgoHelper()
	Expect(s.Again()).To(Succeed())
	s.EventuallyReady(ctx)
}
