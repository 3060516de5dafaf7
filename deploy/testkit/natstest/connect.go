package natstest

import (
	"fmt"
	"net"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// URL returns the address for other processes. It needs Options.Listen.
func (s *Server) URL() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprintf("nats://127.0.0.1:%d", s.port)
}

// InProcessConn connects to the server without the network. It makes *Server a
// nats.InProcessServer. Connections reconnect after Restart.
func (s *Server) InProcessConn() (net.Conn, error) {
	if running := s.current(); running != nil {
		return running.InProcessConn()
	}
	return nil, server.ErrServerNotRunning
}

// MonitorURL returns the address of the monitoring port of a running server.
func (s *Server) MonitorURL() string {
	if running := s.current(); running != nil && running.MonitorAddr() != nil {
		return "http://" + running.MonitorAddr().String()
	}
	return ""
}

// Dial is the client option for a connection without the network.
func (s *Server) Dial() nats.Option { return nats.InProcessServer(s) }

// JetStream returns a JetStream context on its own in-process connection, which reconnects within
// 50 ms of a restart, and the function that closes it.
func (s *Server) JetStream(opts ...nats.Option) (jetstream.JetStream, func(), error) {
	all := append([]nats.Option{
		s.Dial(),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(50 * time.Millisecond),
		nats.ReconnectJitter(0, 0),
		// The default handler writes to standard error.
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}),
	}, opts...)
	nc, err := nats.Connect("", all...)
	if err != nil {
		return nil, nil, fmt.Errorf("connect to NATS: %w", err)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		nc.Close()
		return nil, nil, fmt.Errorf("open JetStream: %w", err)
	}
	return js, nc.Close, nil
}
