// Package reach finds out which addresses a process can reach.
package reach

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"
)

// DNS before a host and port stands for a name server there, asked by UDP.
const DNS = "dns:"

// timeout is the time after which an address counts as unreachable. If packets are
// dropped, nothing else ends an attempt.
const timeout = 4 * time.Second

// All tries all addresses at once, host and port each, and returns which were reached.
func All(ctx context.Context, addresses []string) map[string]bool {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var mu sync.Mutex
	var tries sync.WaitGroup
	reached := map[string]bool{}
	for _, address := range addresses {
		tries.Go(func() {
			err := try(ctx, address)
			mu.Lock()
			defer mu.Unlock()
			reached[address] = err == nil
		})
	}
	tries.Wait()
	return reached
}

func try(ctx context.Context, address string) error {
	if server, is := strings.CutPrefix(address, DNS); is {
		return ask(ctx, server)
	}
	connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("reach %s: %w", address, err)
	}
	return connection.Close()
}

// ask sends a question to a name server and accepts any answer.
func ask(ctx context.Context, server string) error {
	var d net.Dialer
	connection, err := d.DialContext(ctx, "udp", server)
	if err != nil {
		return fmt.Errorf("reach %s: %w", server, err)
	}
	defer connection.Close()
	if deadline, has := ctx.Deadline(); has {
		_ = connection.SetDeadline(deadline)
	}
	// The NS records of the root, by RFC 1035: identifier, flags, one question, the
	// empty name, type and class.
	question := []byte{0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 1}
	if _, err := connection.Write(question); err != nil {
		return fmt.Errorf("ask %s: %w", server, err)
	}
	if _, err := connection.Read(make([]byte, len(question))); err != nil {
		return fmt.Errorf("ask %s: %w", server, err)
	}
	return nil
}
