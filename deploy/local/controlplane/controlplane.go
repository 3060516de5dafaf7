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
	// Progress receives a line per step, meant for a person. Nil means silence.
	Progress io.Writer
}

// ControlPlane is a running etcd with a kube-apiserver in front of it. Its
// methods may be called from several goroutines.
type ControlPlane struct {
	options   Options
	data      dataDir
	authority *authority
	port      int

	mu        sync.Mutex // serialises the methods that start or stop something
	etcd      *process
	apiServer *process // nil while stopped
	over      bool

	failed chan struct{}
	fail   func(error)
	cause  error // valid once failed is closed
}

// Start runs a control plane and returns when it serves requests as a cluster
// does: the API server is ready, the default roles and the namespace default exist.
func Start(ctx context.Context, options Options) (*ControlPlane, error) {
	if options.Progress == nil {
		options.Progress = io.Discard
	}
	if options.Assets == (assets.Binaries{}) {
		found, err := assets.Find(ctx, assets.Options{Progress: options.Progress})
		if err != nil {
			return nil, err
		}
		options.Assets = found
	}
	begin := time.Now()
	plane, err := prepare(options)
	if err != nil {
		return nil, err
	}
	if err := plane.startAll(ctx); err != nil {
		return nil, errors.Join(err, plane.discard())
	}
	fmt.Fprintf(options.Progress, "control plane ready in %s, kubeconfig %s\n",
		time.Since(begin).Round(100*time.Millisecond), plane.Kubeconfig())
	return plane, nil
}

// prepare creates the files.
func prepare(options Options) (*ControlPlane, error) {
	data, err := openDataDir(options.Dir)
	if err != nil {
		return nil, err
	}
	plane := &ControlPlane{options: options, data: data, failed: make(chan struct{})}
	var once sync.Once
	plane.fail = func(err error) {
		once.Do(func() {
			plane.cause = err
			close(plane.failed)
		})
	}
	if err := plane.prepareFiles(); err != nil {
		return nil, errors.Join(err, data.close())
	}
	return plane, nil
}

func (c *ControlPlane) prepareFiles() (err error) {
	if c.port, err = choosePort(c.data); err != nil {
		return err
	}
	if c.authority, err = openAuthority(c.data); err != nil {
		return err
	}
	return c.authority.writeKubeconfig(c.Kubeconfig(), "https://"+loopback(c.port))
}

func (c *ControlPlane) startAll(ctx context.Context) error {
	fmt.Fprintf(c.options.Progress, "starting etcd and kube-apiserver in %s\n", c.data.dir)
	etcd, err := startEtcd(ctx, c.options.Assets.Etcd(), c.data)
	if err != nil {
		return err
	}
	c.etcd = etcd
	go c.watch(etcd)
	return c.StartAPIServer(ctx)
}

// watch reports the end of a process that was not asked to end.
func (c *ControlPlane) watch(p *process) {
	<-p.Exited()
	if !p.asked.Load() {
		c.fail(p.failure())
	}
}

// Failed is closed when etcd or kube-apiserver ended without being asked to. Err
// is which and why.
func (c *ControlPlane) Failed() <-chan struct{} { return c.failed }

// Err is nil until Failed is closed, and from then on an error that wraps
// ErrExited, with the last line of the log.
func (c *ControlPlane) Err() error {
	select {
	case <-c.failed:
		return c.cause
	default:
		return nil
	}
}

// Stop ends both processes and removes a temporary folder. It kills them if ctx ends
// first. A second call does nothing.
func (c *ControlPlane) Stop(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return nil
	}
	c.over = true
	if c.data.temporary {
		// A graceful exit, of 2 s each, is for data that is read again.
		return c.discard()
	}
	var err error
	if c.apiServer != nil {
		err = c.apiServer.stop(ctx)
	}
	return errors.Join(err, c.etcd.stop(ctx), c.data.close())
}

// discard kills whatever runs.
func (c *ControlPlane) discard() error {
	for _, p := range []*process{c.apiServer, c.etcd} {
		if p != nil {
			p.kill()
		}
	}
	return c.data.close()
}

// Kubeconfig is the path of the administrator's kubeconfig.
func (c *ControlPlane) Kubeconfig() string { return c.data.path("kubeconfig") }
