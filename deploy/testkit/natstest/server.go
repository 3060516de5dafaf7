// Package natstest runs real NATS servers with JetStream for tests: inside the test's process, ready
// in milliseconds, one for each spec. Functions with a testing.TB fail the test on errors, and clean up after it.
package natstest

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// startTimeout is how long a server may take to accept connections.
	startTimeout = 10 * time.Second
	// maxStore is the limit of all streams of a server in bytes.
	maxStore = 64 << 30
	// storesDir is the environment variable with the folder for temporary stores (empty: the usual one for such files).
	storesDir = "NATSTEST_DIR"
)

// Options configure a server. The zero value gives a server that only this process can reach, with
// a store that Close removes.
type Options struct {
	// Name of the server (empty: "natstest").
	Name string
	// StoreDir keeps the streams, also for a later server. Empty means a temporary directory that
	// Close removes.
	StoreDir string
	// Listen opens a TCP port on 127.0.0.1 for other processes. It stays the same across Restart.
	Listen bool
	// MaxPayload is the maximum size of a message in bytes, headers included (0 means 1 MiB).
	MaxPayload int32
	// ConfigFile is a server configuration, such as one with accounts and permissions. Its addresses
	// and its store are overridden.
	ConfigFile string
	// Log receives the server's log; nil discards it.
	Log server.Logger
	// Monitor opens a monitoring port on 127.0.0.1; see MonitorURL.
	Monitor bool
	// SyncAlways makes the server sync to disk before it acknowledges.
	SyncAlways bool

	// routes to all servers of a cluster, and the index of this server's route.
	routes []*url.URL
	route  int
}

// Server is a NATS server in this process. Its methods are safe for concurrent use.
type Server struct {
	options  Options
	ownStore bool

	mu      sync.Mutex
	running *server.Server
	port    int
}

// Run starts a server and waits until it accepts connections. The caller must call Close.
func Run(o Options) (*Server, error) {
	o.Name = cmp.Or(o.Name, "natstest")
	s := &Server{options: o, port: server.RANDOM_PORT}
	if o.StoreDir == "" {
		dir, err := os.MkdirTemp(os.Getenv(storesDir), "natstest-")
		if err != nil {
			return nil, fmt.Errorf("create store: %w", err)
		}
		s.options.StoreDir, s.ownStore = dir, true
	}
	if err := s.Start(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Start runs the server again after Stop or Kill, with the same store and port.
func (s *Server) Start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running != nil {
		return errors.New("start NATS server: it is running")
	}
	opts, err := s.serverOptions()
	if err != nil {
		return err
	}
	srv, err := server.NewServer(opts)
	if err != nil {
		return fmt.Errorf("create NATS server: %w", err)
	}
	if s.options.Log != nil {
		srv.SetLoggerV2(s.options.Log, false, false, false)
	}
	srv.Start()
	if !srv.ReadyForConnections(startTimeout) {
		srv.Shutdown()
		srv.WaitForShutdown()
		return fmt.Errorf("start NATS server: not ready within %s", startTimeout)
	}
	if addr, ok := srv.Addr().(*net.TCPAddr); ok && !opts.DontListen {
		s.port = addr.Port
	}
	s.running = srv
	return nil
}

func (s *Server) serverOptions() (opts *server.Options, err error) {
	opts = new(server.Options)
	if s.options.ConfigFile != "" {
		if opts, err = server.ProcessConfigFile(s.options.ConfigFile); err != nil {
			return nil, fmt.Errorf("read NATS configuration: %w", err)
		}
	}
	opts.ServerName = s.options.Name
	opts.Host, opts.Port = "127.0.0.1", s.port
	opts.HTTPPort, opts.HTTPSPort = 0, 0
	opts.DontListen = !s.options.Listen
	opts.JetStream = true
	opts.StoreDir = s.options.StoreDir
	// Otherwise a nearly full disk refuses streams with large limits, which specs hardly fill.
	opts.JetStreamMaxStore = cmp.Or(opts.JetStreamMaxStore, maxStore)
	opts.NoLog = true
	// Otherwise the server handles SIGINT and ends the process.
	opts.NoSigs = true
	if s.options.Monitor {
		opts.HTTPHost, opts.HTTPPort = "127.0.0.1", server.RANDOM_PORT
	}
	opts.SyncAlways = opts.SyncAlways || s.options.SyncAlways
	opts.MaxPayload = cmp.Or(s.options.MaxPayload, opts.MaxPayload)
	if routes := s.options.routes; routes != nil {
		opts.Cluster.Name, opts.Cluster.Host, opts.Routes = "natstest", "127.0.0.1", routes
		opts.Cluster.Port, err = strconv.Atoi(routes[s.options.route].Port())
	}
	return opts, err
}

// Stop ends the server like SIGTERM, keeps its store and waits until the server has ended. It does
// nothing on a stopped server.
func (s *Server) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stop()
}

func (s *Server) stop() {
	if s.running == nil {
		return
	}
	s.running.Shutdown()
	s.running.WaitForShutdown()
	s.running = nil
}

// Restart stops the server and starts it with the same store and port.
func (s *Server) Restart() error {
	s.Stop()
	return s.Start()
}

// Wipe simulates the loss of the volume: it stops the server and removes its store. Start runs it
// again.
func (s *Server) Wipe() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stop()
	if err := os.RemoveAll(s.options.StoreDir); err != nil {
		return fmt.Errorf("remove store: %w", err)
	}
	return nil
}

// Close stops the server for good and removes its store, unless Options set the directory.
func (s *Server) Close() error {
	if s.ownStore {
		return s.Wipe()
	}
	s.Stop()
	return nil
}

// current returns the running server, or nil.
func (s *Server) current() *server.Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running
}

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

// Kill simulates kill -9: data that the server handed to the operating system is kept, data that it
// would write during shutdown is lost. Start runs it again.
//
// The server shares this process, so Kill copies its files first and replaces the store with the
// copy after an orderly shutdown.
func (s *Server) Kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running == nil {
		return errors.New("kill NATS server: it is not running")
	}
	crashed := s.options.StoreDir + ".crashed"
	err := copyLive(s.options.StoreDir, crashed)
	s.stop()
	if err != nil {
		return errors.Join(fmt.Errorf("copy store: %w", err), os.RemoveAll(crashed))
	}
	if err := os.RemoveAll(s.options.StoreDir); err != nil {
		return fmt.Errorf("replace store: %w", err)
	}
	if err := os.Rename(crashed, s.options.StoreDir); err != nil {
		return fmt.Errorf("replace store: %w", err)
	}
	return nil
}

// copyTries is the number of attempts at a copy, because a file may vanish during one.
const copyTries = 5

// copyLive copies a directory while files come and go.
func copyLive(from, to string) error {
	var err error
	for range copyTries {
		if err = os.RemoveAll(to); err != nil {
			return err
		}
		if err = os.CopyFS(to, os.DirFS(from)); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return err
}
