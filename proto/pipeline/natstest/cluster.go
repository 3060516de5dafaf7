package natstest

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// clusterTimeout is how long a cluster may take to elect a leader.
const clusterTimeout = time.Minute

// clusterOptions configure one server of a cluster.
type clusterOptions struct {
	port   int
	routes []*url.URL
}

func (c *clusterOptions) apply(opts *server.Options) {
	opts.Cluster.Name = "natstest"
	opts.Cluster.Host, opts.Cluster.Port = "127.0.0.1", c.port
	opts.Routes = c.routes
}

// RunCluster starts a cluster of servers with the same options, each with its own name and store,
// and waits until JetStream is ready on all of them. The servers listen on TCP ports, because
// routes need them; routes in a configuration file are overridden. On an error no server is left
// running.
func RunCluster(size int, o Options) (_ []*Server, err error) {
	var ports []int
	for range size {
		port, err := freePort()
		if err != nil {
			return nil, err
		}
		ports = append(ports, port)
	}
	var servers []*Server
	defer func() {
		if err == nil {
			return
		}
		for _, s := range servers {
			err = errors.Join(err, s.Close())
		}
	}()
	for i, port := range ports {
		c := &clusterOptions{port: port}
		for _, other := range ports {
			c.routes = append(c.routes, &url.URL{Scheme: "nats", Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(other))})
		}
		o.Name, o.StoreDir, o.Listen = "natstest-"+strconv.Itoa(i), "", true
		s, err := run(o, c)
		if err != nil {
			return nil, err
		}
		servers = append(servers, s)
	}
	return servers, awaitFormed(servers)
}

func awaitFormed(servers []*Server) error {
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	deadline := time.NewTimer(clusterTimeout)
	defer deadline.Stop()
	for !formed(servers) {
		select {
		case <-poll.C:
		case <-deadline.C:
			return fmt.Errorf("form cluster: no leader within %s", clusterTimeout)
		}
	}
	return nil
}

// formed reports whether all servers follow one leader.
func formed(servers []*Server) bool {
	leaders := 0
	for _, s := range servers {
		s.mu.Lock()
		running := s.running
		s.mu.Unlock()
		if running == nil || !running.JetStreamIsCurrent() {
			return false
		}
		if running.JetStreamIsLeader() && len(running.JetStreamClusterPeers()) == len(servers) {
			leaders++
		}
	}
	return leaders == 1
}

// freePort returns a free TCP port, because routes must be known before the servers start.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	defer l.Close()
	addr, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		return 0, fmt.Errorf("find a free port: %s is not a TCP address", l.Addr())
	}
	return addr.Port, nil
}
