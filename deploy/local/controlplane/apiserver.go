package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"time"

	"k8s.io/client-go/tools/clientcmd"
)

// requestTimeout limits each check whether the API server is ready.
const requestTimeout = 5 * time.Second

// startAPIServer starts the API server, and returns when it is ready.
func (c *ControlPlane) startAPIServer(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig())
	if err != nil {
		return fmt.Errorf("read the kubeconfig of the control plane: %w", err)
	}
	config.Timeout = requestTimeout
	server, err := c.data.start(c.assets, apiServerProgram, c.data.apiServerFlags(c.port)...)
	if err != nil {
		return err
	}
	ready := func(ctx context.Context) error { return Ready(ctx, config) }
	err = server.await(ctx, 50*time.Millisecond, ready, c.etcd) // without etcd, it would wait and not say so
	if err != nil {
		return err
	}
	c.apiServer = server
	go c.watch(server)
	return nil
}

func (d dataDir) apiServerFlags(port int) []string {
	return []string{
		"--etcd-servers=unix://" + etcdSocket,
		"--bind-address=127.0.0.1",
		"--advertise-address=127.0.0.1",
		"--secure-port=" + strconv.Itoa(port),
		// The endpoint of the Service kubernetes cannot be a loopback address.
		"--endpoint-reconciler-type=none",
		"--service-cluster-ip-range=" + serviceRange,
		"--tls-cert-file=" + d.path(pkiDir, servingCert),
		"--tls-private-key-file=" + d.path(pkiDir, servingKey),
		"--token-auth-file=" + d.path(pkiDir, adminToken),
		// Without it, an open watch delays the shutdown by a minute.
		"--shutdown-watch-termination-grace-period=1s",
		"--authorization-mode=RBAC",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + d.path(pkiDir, serviceAccountKey),
		"--service-account-signing-key-file=" + d.path(pkiDir, serviceAccountKey),
	}
}

// etcdSocket is a path relative to the folder in which both processes run, because the path of a Unix socket is
// limited to about a hundred bytes. Unlike a port, other users cannot reach it.
const etcdSocket = "etcd.sock"

func (c *ControlPlane) startEtcd(ctx context.Context) error {
	socket := c.data.path(etcdSocket)
	if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the socket of an earlier etcd: %w", err)
	}
	etcd, err := c.data.start(c.assets, etcdProgram, c.data.etcdFlags()...)
	if err != nil {
		return err
	}
	err = etcd.await(ctx, 10*time.Millisecond, func(context.Context) error {
		_, err := os.Stat(socket)
		return err
	})
	if err != nil {
		return err
	}
	c.etcd = etcd
	go c.watch(etcd)
	return nil
}

func (d dataDir) etcdFlags() []string {
	// A single member needs no peers, but their port cannot be disabled.
	const nowhere = "http://127.0.0.1:0"
	return []string{
		"--data-dir=" + d.path("etcd"),
		"--listen-client-urls=unix://" + etcdSocket,
		"--advertise-client-urls=" + nowhere,
		"--listen-peer-urls=" + nowhere,
		"--initial-advertise-peer-urls=" + nowhere,
		"--initial-cluster=default=" + nowhere,
		"--unsafe-no-fsync",
	}
}
