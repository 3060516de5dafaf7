package process

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// Ports are taken from below those that outgoing connections are given. A
// service that is down would else find its port taken when it comes back.
const (
	firstPort = 20000
	lastPort  = 32000
	portTries = 100
)

// Ports hands out each port once in a while, so that two programs that start
// at the same time do not get the same. It may be used from several goroutines.
type Ports struct {
	mu   sync.Mutex
	next int
}

// NewPorts begins at a random port, so that two suites rarely meet.
func NewPorts() *Ports { return &Ports{next: rand.IntN(lastPort - firstPort)} }

// Free returns an address on loopback that no socket listens at.
func (p *Ports) Free() (address string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for range portTries {
		p.next = (p.next + 1) % (lastPort - firstPort)
		address = net.JoinHostPort("127.0.0.1", strconv.Itoa(firstPort+p.next))
		listener, err := net.Listen("tcp", address)
		if err != nil {
			continue
		}
		if err := listener.Close(); err != nil {
			return "", fmt.Errorf("free the port of %s: %w", address, err)
		}
		return address, nil
	}
	return "", errors.New("there is no free port on 127.0.0.1")
}
