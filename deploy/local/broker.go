package local

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"
)

// maxPayload is the maximum size of a message in bytes. It fits a body of 1,000,000 bytes with its metadata.
const maxPayload = 2 << 20

// brokerOptions configure the NATS server in this process.
type brokerOptions struct {
	// Dir keeps the streams across restarts. It is created if needed.
	Dir string
	// Listen is a TCP address for other programs such as the nats command, or empty for
	// none.
	Listen string
	// Log receives the log of the server.
	Log zerolog.Logger
}

// broker is a running NATS server with JetStream.
type broker struct {
	server *server.Server
}

const readyTimeout = 10 * time.Second

// startBroker runs a server and returns when it accepts connections. No other server may use the same folder, because
// they would overwrite each other's streams.
func startBroker(o brokerOptions) (*broker, error) {
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("start NATS in %s: %w", o.Dir, err)
	}
	options := &server.Options{
		ServerName: "curl-me-that",
		JetStream:  true,
		StoreDir:   o.Dir,
		DontListen: o.Listen == "",
		MaxPayload: maxPayload,
		NoSigs:     true, // the process handles its signals itself
		// Otherwise a disk with less than 7 GB free refuses streams with large limits, which a laptop hardly fills.
		JetStreamMaxStore: math.MaxInt64,
	}
	if err := listenAt(options, o.Listen); err != nil {
		return nil, err
	}
	s, err := server.NewServer(options)
	if err != nil {
		return nil, fmt.Errorf("set up NATS in %s: %w", o.Dir, err)
	}
	serverLog := &logger{log: o.Log}
	s.SetLoggerV2(serverLog, false, false, false)
	s.Start()
	if !s.ReadyForConnections(readyTimeout) {
		s.Shutdown()
		if fatal := serverLog.fatal(); fatal != "" {
			return nil, fmt.Errorf("start NATS in %s: %s", o.Dir, fatal)
		}
		return nil, fmt.Errorf("start NATS in %s: not ready after %s", o.Dir, readyTimeout)
	}
	return &broker{server: s}, nil
}

// listenAt sets the TCP address. It tries to listen first, because the server would only log an error.
func listenAt(options *server.Options, address string) error {
	if address == "" {
		return nil
	}
	host, portText, err := net.SplitHostPort(address)
	port, portErr := strconv.ParseUint(portText, 10, 16)
	if err != nil || portErr != nil {
		return fmt.Errorf("--nats-listen: %q is not an address such as 127.0.0.1:4222", address)
	}
	probe, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("--nats-listen: %w", err)
	}
	options.Host, options.Port = host, int(port)
	if port == 0 {
		options.Port = server.RANDOM_PORT
	}
	return probe.Close()
}

// Dial returns the option that connects a client in this process.
func (b *broker) Dial() nats.Option { return nats.InProcessServer(b.server) }

// URL returns the address for other programs, or "" if there is none.
func (b *broker) URL() string {
	if addr := b.server.Addr(); addr != nil {
		return "nats://" + addr.String()
	}
	return ""
}

// Stop stops the server and waits until it has ended.
func (b *broker) Stop(ctx context.Context) error {
	b.server.Shutdown()
	done := make(chan struct{})
	go func() {
		b.server.WaitForShutdown()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return errors.New("stop NATS: timed out")
	}
}
