package system

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/keys"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// brokerModule is the program of NATS itself, in the version that go.mod names
// as a tool.
const brokerModule = "github.com/nats-io/nats-server/v2"

// brokerConfig takes the number of the server, the addresses for clients and for health,
// the port for profiles, and the folder of the streams. The rest is the default, as in a
// plain installation.
const brokerConfig = `server_name: bench-%d
listen: %q
http: %q
prof_port: %s
max_payload: 2MB
jetstream { store_dir: %q%s }
`

// clusterConfig takes the address for the other servers, and theirs. What is in a
// cluster is on the disk before it is acknowledged, as in deploy/nats/cluster.conf.
const clusterConfig = `cluster { name: bench, listen: %q, routes: ["nats://%s"] }
`

// onDisk is a part of brokerConfig.
const onDisk = ", sync_interval: always"

// startBrokers runs as many NATS servers as there are replicas, each as a process of its
// own, with the accounts if there are to be any. It returns when all take connections,
// and those of a cluster have streams.
func (s *System) startBrokers(ctx context.Context) error {
	// Where it is up to date, Go does not link it again.
	path, err := filepath.Abs(filepath.Join(".cache", "bench", "nats-server"))
	if err != nil {
		return fmt.Errorf("find the checkout: %w", err)
	}
	build := exec.CommandContext(ctx, "go", "build", "-o", path, brokerModule)
	if text, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s, which works in the checkout only: %w: %s", brokerModule, err, text)
	}
	if s.options.Accounts {
		if err := s.identify(ctx); err != nil {
			return err
		}
	}
	servers := max(1, s.options.Replicas)
	routes := make([]string, servers)
	for i := range routes {
		if routes[i], err = s.ports.Free(); err != nil {
			return err
		}
	}
	for i := range servers {
		if err := s.startBroker(path, i, routes); err != nil {
			return err
		}
	}
	for _, p := range s.brokers {
		if err := p.ready(ctx); err != nil {
			return err
		}
	}
	if servers == 1 {
		return nil
	}
	return s.replicate(ctx, servers)
}

// startBroker runs the n-th server.
func (s *System) startBroker(path string, n int, routes []string) error {
	var client, monitor, profiles string
	for _, address := range []*string{&client, &monitor, &profiles} {
		var err error
		if *address, err = s.ports.Free(); err != nil {
			return err
		}
	}
	_, port, err := net.SplitHostPort(profiles)
	if err != nil {
		return fmt.Errorf("configure nats: %w", err)
	}
	sync, cluster := "", ""
	if len(routes) > 1 {
		sync, cluster = onDisk, fmt.Sprintf(clusterConfig, routes[n], strings.Join(routes, `", "nats://`))
	}
	config := fmt.Sprintf(brokerConfig, n, client, monitor, port, filepath.Join(s.Streams(), strconv.Itoa(n)), sync) + cluster
	if s.options.Accounts {
		config += "include \"accounts.conf\"\n"
	}
	file := filepath.Join(s.dir, fmt.Sprintf("nats-%d.conf", n))
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return fmt.Errorf("configure nats: %w", err)
	}
	p, err := launch("nats", path, "http://"+monitor+"/healthz", "--config", file)
	if err != nil {
		return err
	}
	p.profiles = "http://127.0.0.1:" + port + "/debug/pprof/"
	s.brokers, s.addresses = append(s.brokers, p), append(s.addresses, client)
	return nil
}

// replicate makes the streams with so many replicas, which takes until the servers have
// a leader.
func (s *System) replicate(ctx context.Context, replicas int) error {
	nc, js, err := keys.Connect(s.NATS())
	if err != nil {
		return err
	}
	defer nc.Close()
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for {
		_, err := pipeline.Ensure(ctx, js, pipeline.Topology{Replicas: replicas})
		if err == nil {
			return nil
		}
		if Pause(ctx, probeInterval) != nil {
			return fmt.Errorf("make streams with %d replicas: %w", replicas, err)
		}
	}
}
