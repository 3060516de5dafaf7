package system

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/process"
)

// brokerModule is the program of NATS itself, in the version that go.mod names
// as a tool.
const brokerModule = "github.com/nats-io/nats-server/v2"

// brokerConfig takes the addresses for clients and for health, the port for
// profiles, and the folder of the streams. The rest is the default, as in a plain installation.
const brokerConfig = `server_name: bench
listen: %q
http: %q
prof_port: %s
max_payload: 2MB
jetstream { store_dir: %q }
`

// startBroker runs a NATS server as a process of its own, by accounts.conf in dir
// if that is there to be used. It returns when the server takes connections, and
// with it the address for them.
func startBroker(ctx context.Context, ports *process.Ports, dir string, accounts bool) (broker *program, address string, err error) {
	// Where it is up to date, Go does not link it again.
	path, err := filepath.Abs(filepath.Join(".cache", "bench", "nats-server"))
	if err != nil {
		return nil, "", fmt.Errorf("find the checkout: %w", err)
	}
	build := exec.CommandContext(ctx, "go", "build", "-o", path, brokerModule)
	if text, err := build.CombinedOutput(); err != nil {
		return nil, "", fmt.Errorf("build %s, which works in the checkout only: %w: %s", brokerModule, err, text)
	}
	address, err = ports.Free()
	if err != nil {
		return nil, "", err
	}
	monitor, err := ports.Free()
	if err != nil {
		return nil, "", err
	}
	profiles, err := ports.Free()
	if err != nil {
		return nil, "", err
	}
	_, port, err := net.SplitHostPort(profiles)
	if err != nil {
		return nil, "", fmt.Errorf("configure nats: %w", err)
	}
	file := filepath.Join(dir, "nats.conf")
	config := fmt.Sprintf(brokerConfig, address, monitor, port, filepath.Join(dir, "streams"))
	if accounts {
		config += "include \"accounts.conf\"\n"
	}
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return nil, "", fmt.Errorf("configure nats: %w", err)
	}
	broker, err = launch("nats", path, "http://"+monitor+"/healthz", "--config", file)
	if err != nil {
		return nil, "", err
	}
	broker.profiles = "http://127.0.0.1:" + port + "/debug/pprof/"
	if err := broker.ready(ctx); err != nil {
		return nil, "", errors.Join(err, broker.end(ctx))
	}
	return broker, address, nil
}
