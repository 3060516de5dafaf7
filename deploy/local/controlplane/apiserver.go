package controlplane

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/kv8s/curl-me-that/deploy/local/controlplane/access"
)

// requestTimeout is for one look whether the API server is ready.
const requestTimeout = 5 * time.Second

// StartAPIServer starts an API server that was killed, on the same
// port and with the same certificates, and returns when it is ready.
func (c *ControlPlane) StartAPIServer(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return fmt.Errorf("start kube-apiserver: %w", ErrStopped)
	}
	if c.apiServer != nil {
		return fmt.Errorf("start kube-apiserver: %w", ErrRunning)
	}
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig())
	if err != nil {
		return fmt.Errorf("read the kubeconfig of the control plane: %w", err)
	}
	config.Timeout = requestTimeout
	server, err := program{
		name: "kube-apiserver",
		path: c.options.Assets.APIServer(),
		args: c.apiServerFlags(),
		dir:  c.data.dir,
		log:  c.data.log("kube-apiserver"),
	}.start()
	if err != nil {
		return err
	}
	err = server.await(ctx, 50*time.Millisecond, func(ctx context.Context) error { return access.Ready(ctx, config) })
	if err != nil {
		server.kill()
		return err
	}
	c.apiServer = server
	go c.watch(server)
	return nil
}

// KillAPIServer ends the API server as a crash would; etcd goes on. It does
// nothing when the API server does not run.
func (c *ControlPlane) KillAPIServer() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.apiServer != nil {
		c.apiServer.kill()
		c.apiServer = nil
	}
}

func (c *ControlPlane) apiServerFlags() []string {
	return []string{
		"--etcd-servers=unix://" + EtcdSocket,
		"--bind-address=127.0.0.1",
		"--advertise-address=127.0.0.1",
		"--secure-port=" + strconv.Itoa(c.port),
		// A loopback address is refused as the endpoint of the service kubernetes.
		"--endpoint-reconciler-type=none",
		"--service-cluster-ip-range=" + serviceRange,
		"--tls-cert-file=" + c.data.path(pkiDir, servingCert),
		"--tls-private-key-file=" + c.data.path(pkiDir, servingKey),
		"--client-ca-file=" + c.data.path(pkiDir, authorityCert),
		// Without it, an open watch holds up the end for a minute.
		"--shutdown-watch-termination-grace-period=1s",
		"--authorization-mode=RBAC",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + c.data.path(pkiDir, serviceAccountKey),
		"--service-account-signing-key-file=" + c.data.path(pkiDir, serviceAccountKey),
	}
}
