package natstest

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"time"
)

// clusterTimeout is how long a cluster may take to elect a leader.
const clusterTimeout = time.Minute

// clusterTries is how often a cluster is started, because another process may take a port that was
// free a moment ago.
const clusterTries = 3

// RunCluster starts a cluster of servers with the same options, each with its own name and store,
// and waits until JetStream is ready on all of them. The servers listen on TCP ports, because
// routes need them. Routes in a configuration file are overridden.
func RunCluster(size int, o Options) (servers []*Server, err error) {
	for range clusterTries {
		if servers, err = startCluster(size, o); err == nil {
			break
		}
		for _, s := range servers {
			err = errors.Join(err, s.Close())
		}
	}
	return servers, err
}

func startCluster(size int, o Options) (servers []*Server, err error) {
	for range size {
		unused, err := net.Listen("tcp", "127.0.0.1:0") // routes must be known before the servers start
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		o.routes = append(o.routes, &url.URL{Scheme: "nats", Host: unused.Addr().String()})
		_ = unused.Close() // it was never used
	}
	for i := range size {
		o.Name, o.StoreDir, o.Listen, o.route = "natstest-"+strconv.Itoa(i), "", true, i
		s, err := Run(o)
		if err != nil {
			return servers, err
		}
		servers = append(servers, s)
	}
	for began := time.Now(); !formed(servers); <-time.After(5 * time.Millisecond) {
		if time.Since(began) > clusterTimeout {
			return servers, fmt.Errorf("form cluster: no leader within %s", clusterTimeout)
		}
	}
	return servers, nil
}

// formed reports whether all servers follow one leader.
func formed(servers []*Server) bool {
	leaders := 0
	for _, s := range servers {
		running := s.current()
		if running == nil || !running.JetStreamIsCurrent() {
			return false
		}
		if running.JetStreamIsLeader() && len(running.JetStreamClusterPeers()) == len(servers) {
			leaders++
		}
	}
	return leaders == 1
}
