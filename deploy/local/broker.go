package local

import (
	"fmt"
	"math"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/rs/zerolog"
)

// maxPayload is the maximum size of a message in bytes. It fits a body of 1,000,000 bytes with its metadata.
const maxPayload = 2 << 20

const readyTimeout = 10 * time.Second

// startBroker runs a server with JetStream and returns when it accepts connections. dir keeps the streams across
// restarts. No other server may use it, because they would overwrite each other's streams. listen is a TCP address for
// other programs, such as the nats command (empty: none).
func startBroker(dir, listen string, log zerolog.Logger) (*server.Server, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("start NATS in %s: %w", dir, err)
	}
	options := &server.Options{
		ServerName: "curl-me-that",
		JetStream:  true,
		StoreDir:   dir,
		DontListen: listen == "",
		MaxPayload: maxPayload,
		NoSigs:     true, // the process handles its signals itself
		// Otherwise a disk with less than 7 GB free refuses streams with large limits, which a laptop hardly fills.
		JetStreamMaxStore: math.MaxInt64,
	}
	if err := listenAt(options, listen); err != nil {
		return nil, err
	}
	s, err := server.NewServer(options)
	if err != nil {
		return nil, fmt.Errorf("set up NATS in %s: %w", dir, err)
	}
	serverLog := &logger{log: log}
	s.SetLoggerV2(serverLog, false, false, false)
	s.Start()
	if !s.ReadyForConnections(readyTimeout) {
		s.Shutdown()
		if fatal := serverLog.fatal(); fatal != "" {
			return nil, fmt.Errorf("start NATS in %s: %s", dir, fatal)
		}
		return nil, fmt.Errorf("start NATS in %s: not ready after %s", dir, readyTimeout)
	}
	return s, nil
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
