package system

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
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

// startBroker runs a NATS server as a process of its own, with the accounts if there
// are to be any. It returns when the server takes connections.
func (s *System) startBroker(ctx context.Context) error {
	// Where it is up to date, Go does not link it again.
	path, err := filepath.Abs(filepath.Join(".cache", "bench", "nats-server"))
	if err != nil {
		return fmt.Errorf("find the checkout: %w", err)
	}
	build := exec.CommandContext(ctx, "go", "build", "-o", path, brokerModule)
	if text, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s, which works in the checkout only: %w: %s", brokerModule, err, text)
	}
	var monitor, profiles string
	for _, address := range []*string{&s.address, &monitor, &profiles} {
		if *address, err = s.ports.Free(); err != nil {
			return err
		}
	}
	_, port, err := net.SplitHostPort(profiles)
	if err != nil {
		return fmt.Errorf("configure nats: %w", err)
	}
	config := fmt.Sprintf(brokerConfig, s.address, monitor, port, s.Streams())
	if s.options.Accounts {
		if err := s.identify(ctx); err != nil {
			return err
		}
		config += "include \"accounts.conf\"\n"
	}
	file := filepath.Join(s.dir, "nats.conf")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return fmt.Errorf("configure nats: %w", err)
	}
	if s.broker, err = launch("nats", path, "http://"+monitor+"/healthz", "--config", file); err != nil {
		return err
	}
	s.broker.profiles = "http://127.0.0.1:" + port + "/debug/pprof/"
	return s.broker.ready(ctx)
}
