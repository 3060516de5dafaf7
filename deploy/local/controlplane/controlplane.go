// Package controlplane runs a real etcd and kube-apiserver on the loopback interface,
// for tests and demos.
//
// There is no controller manager: a deleted namespace stays in Terminating, objects of a
// deleted owner stay, a new namespace has no default service account, and the aggregated
// cluster roles (admin, edit, view) grant nothing.
//
// The data survives a restart in a named folder. It is not synced to disk, so a crash
// of the machine may lose it.
package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/kv8s/curl-me-that/deploy/local/controlplane/assets"
)

var (
	// ErrPortTaken means that the port of the API server is not free.
	ErrPortTaken = errors.New("port taken")
	// ErrExited means that etcd or kube-apiserver ended without being asked to.
	ErrExited = errors.New("exited")
	// ErrRunning means that the API server is running already.
	ErrRunning = errors.New("already running")
	// ErrStopped means that the control plane is over.
	ErrStopped = errors.New("control plane stopped")
)

// Options configure a control plane. The zero value is a temporary one on a
// free port.
type Options struct {
	// Dir keeps data, certificates, kubeconfigs and logs. A start in a folder that
	// has been used before brings back its objects, and its kubeconfigs stay valid.
	// Empty means a temporary folder that Stop removes.
	Dir string
	// Assets are the programs. The default is assets.Find.
	Assets assets.Binaries
	// Build is an option of assets.Find.
	Build bool
	// Progress receives a line per step, meant for a person. Nil means silence.
	Progress io.Writer
}

// ControlPlane is a running etcd with a kube-apiserver in front of it. Its
// methods may be called from several goroutines.
type ControlPlane struct {
	programs assets.Binaries
	data     dataDir
	port     int
	failed   chan error

	mu        sync.Mutex // serialises the methods that start or stop something
	etcd      *process
	apiServer *process // nil while stopped
	over      bool
}

// Start runs a control plane and returns when it serves requests as a cluster
// does: the API server is ready, the default roles and the namespace default exist.
func Start(ctx context.Context, options Options) (c *ControlPlane, err error) {
	if options.Progress == nil {
		options.Progress = io.Discard
	}
	c = &ControlPlane{programs: options.Assets, failed: make(chan error, 2)}
	if c.programs == (assets.Binaries{}) {
		if c.programs, err = assets.Find(ctx, assets.Options{Build: options.Build, Progress: options.Progress}); err != nil {
			return nil, err
		}
	}
	begin := time.Now()
	if c.data, err = openDataDir(options.Dir); err != nil {
		return nil, err
	}
	if err := c.start(ctx, options.Progress); err != nil {
		return nil, errors.Join(err, c.discard())
	}
	fmt.Fprintf(options.Progress, "control plane ready in %s, kubeconfig %s\n",
		time.Since(begin).Round(100*time.Millisecond), c.Kubeconfig())
	return c, nil
}

func (c *ControlPlane) start(ctx context.Context, progress io.Writer) (err error) {
	if c.port, err = c.data.choosePort(); err != nil {
		return err
	}
	if err := c.data.writeCredentials("127.0.0.1", strconv.Itoa(c.port)); err != nil {
		return err
	}
	fmt.Fprintf(progress, "starting etcd and kube-apiserver in %s\n", c.data.Dir)
	if err := c.startEtcd(ctx); err != nil {
		return err
	}
	return c.StartAPIServer(ctx)
}

// watch reports the end of a process that was not asked to end.
func (c *ControlPlane) watch(p *process) {
	<-p.Exited()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.over && (p == c.etcd || p == c.apiServer) {
		c.failed <- p.failure()
	}
}

// Failed receives an error that wraps ErrExited, with the last line of the log, when etcd or
// kube-apiserver ended without being asked to.
func (c *ControlPlane) Failed() <-chan error { return c.failed }

// Stop ends both processes and removes a temporary folder. It kills them if ctx ends
// first. A second call does nothing.
func (c *ControlPlane) Stop(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return nil
	}
	c.over = true
	if c.data.Temporary {
		// A graceful exit, of 2 s each, is for data that is read again.
		return c.discard()
	}
	var errs []error
	for _, p := range c.running() {
		if _, err := p.Stop(ctx); !errors.Is(err, os.ErrProcessDone) {
			errs = append(errs, err)
		}
	}
	return errors.Join(append(errs, c.data.Close())...)
}

// discard kills whatever runs.
func (c *ControlPlane) discard() error {
	for _, p := range c.running() {
		_ = p.Kill() // it may have ended
	}
	return c.data.Close()
}

// running returns the processes in the order in which they are stopped.
func (c *ControlPlane) running() []*process {
	return slices.DeleteFunc([]*process{c.apiServer, c.etcd}, func(p *process) bool { return p == nil })
}

// Assets are the programs that run.
func (c *ControlPlane) Assets() assets.Binaries { return c.programs }

// Kubeconfig is the path of the administrator's kubeconfig.
func (c *ControlPlane) Kubeconfig() string { return c.data.kubeconfig() }
