package bench

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/system"
	"github.com/kv8s/curl-me-that/deploy/local/controlplane"
)

// profiled is how long the control plane is profiled, during bare patches and during the
// pipeline alike, so that what it does when idle is the same in both.
const profiled = 15 * time.Second

func noProfiles() error { return nil }

// profile begins profiles of all programs, the control plane included, if they are
// asked for, and returns a function that waits until they are written.
func (b *bench) profile(ctx context.Context) (wait func() error) {
	if b.config.Profiles == "" {
		return noProfiles
	}
	programs := b.system.Profile(ctx, b.label)
	control := b.profileControl(ctx, "")
	return func() error { return errors.Join(programs.Wait(), control()) }
}

// profileBare does the same for the control plane alone; when is a part of the names
// of the files, so that they are beside what profile writes.
func (b *bench) profileBare(ctx context.Context, when string) (wait func() error) {
	if b.config.Profiles == "" {
		return noProfiles
	}
	return b.profileControl(ctx, ".bare-"+when)
}

// profileControl begins a profile of the API server, and one of etcd where it is that of
// make bench.
func (b *bench) profileControl(ctx context.Context, suffix string) (wait func() error) {
	profiles := system.NewProfiles(filepath.Join(b.config.Profiles, b.label), profiled)
	profiles.Add("kube-apiserver"+suffix, func(seconds int) ([]byte, error) {
		return b.cluster.Kubernetes.Discovery().RESTClient().Get().AbsPath("/debug/pprof/profile").
			Param("seconds", strconv.Itoa(seconds)).Do(ctx).Raw()
	})
	if _, runs := b.control["etcd"]; runs {
		profiles.AddFrom(ctx, toEtcd(), "etcd"+suffix, "http://etcd/debug/pprof/")
	}
	return profiles.Wait
}

// toEtcd connects to the socket, which is beside the kubeconfig.
func toEtcd() http.RoundTripper {
	socket := filepath.Join(filepath.Dir(os.Getenv("KUBECONFIG")), controlplane.EtcdSocket)
	return &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
}
