package world

import (
	"math/rand/v2"
	"net"
	"strconv"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// Ports are taken from below those that outgoing connections are given. A
// service that is down would else find its port taken when it comes back.
const (
	firstPort = 20000
	lastPort  = 32000
)

// ports hands out each port once in a while, so that two services that start
// at the same time do not get the same.
type ports struct {
	mu   sync.Mutex
	next int
}

func newPorts() *ports { return &ports{next: rand.IntN(lastPort - firstPort)} }

// free returns an address on loopback that nobody listens at.
func (p *ports) free() string {
	GinkgoHelper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for range 100 {
		p.next = (p.next + 1) % (lastPort - firstPort)
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(firstPort+p.next))
		listener, err := net.Listen("tcp", address)
		if err != nil {
			continue
		}
		Expect(listener.Close()).To(Succeed())
		return address
	}
	Fail("there is no free port on 127.0.0.1")
	return ""
}

// FreeAddress returns an address on loopback that nobody listens at.
func (e *Environment) FreeAddress() string {
	GinkgoHelper()
	return e.ports.free()
}
