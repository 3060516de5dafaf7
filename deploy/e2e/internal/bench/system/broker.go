package system

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
)

// brokerModule is the program of NATS itself, in the version that go.mod names
// as a tool.
const brokerModule = "github.com/nats-io/nats-server/v2"

// brokerConfig takes the addresses for clients and for health, and the folder
// of the streams. The rest is the default, as in a plain installation.
const brokerConfig = `server_name: bench
listen: %q
http: %q
max_payload: 2MB
jetstream { store_dir: %q }
`

// startBroker runs a NATS server as a process of its own. It returns when the
// server takes connections, and with it the address for them.
func startBroker(ctx context.Context, dir string) (broker *program, address string, err error) {
	path := filepath.Join(dir, "nats-server")
	build := exec.CommandContext(ctx, "go", "build", "-o", path, brokerModule)
	if text, err := build.CombinedOutput(); err != nil {
		return nil, "", fmt.Errorf("build %s, which works in the checkout only: %w: %s", brokerModule, err, text)
	}
	addresses, err := freeAddresses(2)
	if err != nil {
		return nil, "", err
	}
	file := filepath.Join(dir, "nats.conf")
	config := fmt.Sprintf(brokerConfig, addresses[0], addresses[1], filepath.Join(dir, "streams"))
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return nil, "", fmt.Errorf("configure nats: %w", err)
	}
	broker, err = launch("nats", path, "http://"+addresses[1]+"/healthz", "--config", file)
	if err != nil {
		return nil, "", err
	}
	if err := broker.ready(ctx); err != nil {
		return nil, "", errors.Join(err, broker.end(ctx))
	}
	return broker, addresses[0], nil
}

// freeAddresses returns addresses on loopback that nobody listens on. All are
// held until the last one is found, so that no two are the same.
func freeAddresses(count int) ([]string, error) {
	var addresses []string
	for range count {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		defer listener.Close()
		addresses = append(addresses, listener.Addr().String())
	}
	return addresses, nil
}
