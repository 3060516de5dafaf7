package system

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/process"
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

// broker is a NATS server as a process of its own.
type broker struct {
	*process.Process
	address string
}

func startBroker(ctx context.Context, dir string) (*broker, error) {
	program := filepath.Join(dir, "nats-server")
	build := exec.CommandContext(ctx, "go", "build", "-o", program, brokerModule)
	if text, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build %s: %w: %s", brokerModule, err, text)
	}
	addresses, err := freeAddresses(2)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "nats.conf")
	config := fmt.Sprintf(brokerConfig, addresses[0], addresses[1], filepath.Join(dir, "streams"))
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return nil, fmt.Errorf("configure nats: %w", err)
	}
	p, err := process.Start(process.Options{Name: "nats", Path: program, Args: []string{"--config", file}, LogDir: dir})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	if err := p.AwaitOK(ctx, "http://"+addresses[1]+"/healthz"); err != nil {
		return nil, errors.Join(err, p.Stop())
	}
	return &broker{Process: p, address: addresses[0]}, nil
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
