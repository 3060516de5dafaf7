package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
)

// askTimeout bounds the wait for one server of the system account.
const askTimeout = 3 * time.Second

// Server is what only the system account may know of one.
type Server struct {
	// Always: what is written is on disk before it is acknowledged; else after
	// Interval.
	Always   bool
	Interval time.Duration
	// MemoryLimit is its GOMEMLIMIT in bytes; 0: it has none.
	MemoryLimit int64
}

// AskServer returns what a server reports of itself. The connection must be to the
// system account.
func AskServer(ctx context.Context, nc *nats.Conn) (Server, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	m, err := nc.RequestWithContext(ctx, "$SYS.REQ.SERVER.PING.VARZ", nil)
	if err != nil {
		return Server{}, fmt.Errorf("ask the system account: %w", err)
	}
	var response struct {
		Data struct {
			MemoryLimit int64 `json:"gomemlimit"`
			JetStream   struct {
				Config *struct {
					Interval time.Duration `json:"sync_interval"`
					Always   bool          `json:"sync_always"`
				} `json:"config"`
			} `json:"jetstream"`
		} `json:"data"`
	}
	if err := json.Unmarshal(m.Data, &response); err != nil {
		return Server{}, fmt.Errorf("read the answer of the server: %w", err)
	}
	config := response.Data.JetStream.Config
	if config == nil {
		return Server{}, errors.New("the server reports nothing about its JetStream")
	}
	return Server{Always: config.Always, Interval: config.Interval, MemoryLimit: response.Data.MemoryLimit}, nil
}

const (
	// idleMemory and keyMemory are what a server needs that was away while the
	// timers of all keys came due: it publishes all of them at once. The chart has
	// the same numbers (_memory.tpl); `make bench BENCHFLAGS=-overdue=100000`
	// measures them.
	idleMemory = 64 << 20
	keyMemory  = 4 << 10
)

// MemoryFor returns how many bytes a server needs for so many keys.
func MemoryFor(keys int) int64 { return idleMemory + keyMemory*int64(keys) }

// Carries returns for how many keys the memory of a server suffices whose
// GOMEMLIMIT is limit, four fifths of what it may take.
func Carries(limit int64) int { return int(max(0, limit/4*5-idleMemory) / keyMemory) }
