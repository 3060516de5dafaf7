package process

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// AllowLoopback is the flag that lets a fetcher reach origins on this machine.
const AllowLoopback = "--allow-cidr=127.0.0.0/8,::1/128"

// Ports are below the range of outgoing connections, which might take the port of a stopped service.
const (
	firstPort = 20000
	lastPort  = 32000
	// blockPorts is the number of ports reserved for a process.
	blockPorts = 200
	portTries  = 100
)

// Ports hands out free ports. It reuses a port as late as possible, so that programs that start at the same
// time get different ones. At its first use it claims a block of ports for the life of this process. It is safe
// for concurrent use.
type Ports struct {
	mu sync.Mutex
	// block listens at the first port of the block, which reserves the block.
	block net.Listener
	first int
	next  int
}

// Free returns an unused loopback address.
func (p *Ports) Free() (address string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.claim(); err != nil {
		return "", err
	}
	for range portTries {
		p.next = p.next%(blockPorts-1) + 1
		address = loopback(p.first + p.next)
		listener, err := net.Listen("tcp", address)
		if err != nil {
			continue
		}
		if err := listener.Close(); err != nil {
			return "", fmt.Errorf("free the port of %s: %w", address, err)
		}
		return address, nil
	}
	return "", errors.New("no free port on 127.0.0.1")
}

// claim claims a random block of ports, and starts at a random port. The caller holds the lock.
func (p *Ports) claim() (err error) {
	if p.block != nil {
		return nil
	}
	for _, n := range rand.Perm((lastPort - firstPort) / blockPorts) {
		first := firstPort + n*blockPorts
		if p.block, err = net.Listen("tcp", loopback(first)); err == nil {
			p.first, p.next = first, rand.IntN(blockPorts)
			return nil
		}
	}
	return fmt.Errorf("no block of ports is free: %w", err)
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
