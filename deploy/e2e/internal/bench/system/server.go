package system

import (
	"context"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/usage"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/process"
)

// Server is NATS without the services. It is not safe for concurrent use.
type Server struct {
	// URL for clients, the same for all of its lives.
	URL string

	program *program
}

// StartServer starts a server whose streams are in dir, and returns when it takes
// connections.
func StartServer(ctx context.Context, dir string) (*Server, error) {
	broker, address, err := startBroker(ctx, process.NewPorts(), dir, false)
	if err != nil {
		return nil, err
	}
	return &Server{URL: "nats://" + address, program: broker}, nil
}

// Again starts the server again once it was stopped, as it was.
func (s *Server) Again(ctx context.Context) error {
	again, err := s.program.again(ctx)
	if err != nil {
		return err
	}
	s.program = again
	return nil
}

// Usage returns what the server has used in this life.
func (s *Server) Usage() (usage.Usage, error) { return usage.Of(s.program.PID()) }

// Stop ends the server, if it runs.
func (s *Server) Stop(ctx context.Context) error { return s.program.end(ctx) }
