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

// clusterTimeout bounds how long a cluster may take to agree on a leader.
const clusterTimeout = time.Minute

// clusterOptions are one server's part in a cluster.
type clusterOptions struct {
	port   int
	routes []*url.URL
}

func (c *clusterOptions) apply(opts *server.Options) {
	opts.Cluster.Name = "natstest"
	opts.Cluster.Host, opts.Cluster.Port = "127.0.0.1", c.port
	opts.Routes = c.routes
}

// RunCluster starts size servers by the same options, each with a name and a store
// of its own, that form one cluster, and waits until JetStream is ready on all of
// them. The servers listen on TCP ports, since a server that does not would open no
// routes; routes in a configuration file are overridden. On error nothing is left
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

// formed reports whether the servers have a leader that all of them follow.
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

// freePort returns a TCP port without a listener: routes have to be known
// before the servers that serve them start.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	defer l.Close()
	addr, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		return 0, fmt.Errorf("find a free port: %s is no TCP address", l.Addr())
	}
	return addr.Port, nil
}
