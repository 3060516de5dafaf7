// Package controlplane runs a real etcd and kube-apiserver on the loopback interface, for tests and demos.
//
// There is no controller manager: a deleted namespace stays in Terminating, objects of a
// deleted owner stay, a new namespace has no default service account, and the aggregated
// cluster roles (admin, edit, view) grant nothing.
//
// In a named folder, the data survives a restart. It is not synced to disk, so it may be lost if the machine
// crashes.
package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"time"
)

var (
	// ErrPortTaken means that the port of the API server is in use.
	ErrPortTaken = errors.New("port taken")
	// ErrExited means that etcd or kube-apiserver ended unexpectedly.
	ErrExited = errors.New("exited")
)

// Options configure a control plane. The zero value means a temporary one on a free port.
type Options struct {
	// Dir keeps data, certificates, kubeconfig and logs. A start in a used folder brings back its objects, and
	// its kubeconfig stays valid. Empty means a temporary folder that Stop removes.
	Dir string
	// Progress receives a line per step, for people. Nil means no output.
	Progress io.Writer
}

// ControlPlane is a running etcd and kube-apiserver. Its methods may be called from several goroutines.
type ControlPlane struct {
	assets string // the folder with the programs
	data   dataDir
	port   int
	failed chan error

	mu        sync.Mutex // serialises the methods that start or stop processes
	etcd      *process
	apiServer *process // nil until it has started
	stopped   bool
}

// Start runs a control plane and returns when clients can use it: the API server is ready, and the default roles
// and the namespace default exist.
func Start(ctx context.Context, options Options) (c *ControlPlane, err error) {
	if options.Progress == nil {
		options.Progress = io.Discard
	}
	c = &ControlPlane{failed: make(chan error, 2)}
	if c.assets, err = FindPrograms(); err != nil {
		return nil, err
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
	return c.startAPIServer(ctx)
}

// watch reports the unexpected end of a process.
func (c *ControlPlane) watch(p *process) {
	<-p.Exited()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.stopped && (p == c.etcd || p == c.apiServer) {
		c.failed <- p.failure()
	}
}

// Failed returns a channel that receives an error if etcd or kube-apiserver ends unexpectedly. The error wraps
// ErrExited and contains the last line of the log.
func (c *ControlPlane) Failed() <-chan error { return c.failed }

// Stop ends both processes, or kills them if ctx ends first, and removes a temporary folder. If etcd has died, it kills
// the API server and returns that error. A second call does nothing.
func (c *ControlPlane) Stop(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return nil
	}
	c.stopped = true
	if c.data.Temporary {
		// A graceful exit takes 2 s each, and nobody will read the data again.
		return c.discard()
	}
	ended := func(_ int, err error) error {
		if errors.Is(err, os.ErrProcessDone) {
			return nil
		}
		return err
	}
	// Kill an API server whose etcd has died, because it would wait for etcd without end.
	served, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-c.etcd.Exited():
			cancel(c.etcd.failure())
		case <-served.Done():
		}
	}()
	err := ended(c.apiServer.Stop(served))
	cancel(nil)
	return errors.Join(err, ended(c.etcd.Stop(ctx)), c.data.Close())
}

// discard kills all processes and closes the folder.
func (c *ControlPlane) discard() error {
	for _, p := range []*process{c.apiServer, c.etcd} {
		if p != nil {
			_ = p.Kill() // it may have ended
		}
	}
	return c.data.Close()
}

// Assets returns the folder with the programs of the control plane.
func (c *ControlPlane) Assets() string { return c.assets }

// Kubeconfig returns the path of the administrator's kubeconfig.
func (c *ControlPlane) Kubeconfig() string { return c.data.kubeconfig() }
