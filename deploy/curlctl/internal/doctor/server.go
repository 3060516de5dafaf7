package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/kv8s/curl-me-that/proto/service"
)

// askTimeout bounds the wait for one server of the system account.
const askTimeout = 3 * time.Second

// askServer returns what a server reports of itself, which has JetStream. The
// connection must be to the system account.
func askServer(ctx context.Context, nc *nats.Conn) (service.Varz, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	m, err := nc.RequestWithContext(ctx, "$SYS.REQ.SERVER.PING.VARZ", nil)
	if err != nil {
		return service.Varz{}, fmt.Errorf("ask the system account: %w", err)
	}
	var response struct {
		Data service.Varz `json:"data"`
	}
	if err := json.Unmarshal(m.Data, &response); err != nil {
		return service.Varz{}, fmt.Errorf("read the answer of the server: %w", err)
	}
	if response.Data.JetStream.Config == nil {
		return service.Varz{}, errors.New("the server reports nothing about its JetStream")
	}
	return response.Data, nil
}

const (
	// idleMemory and keyMemory are what a server needs that was away while the
	// timers of all keys came due: it publishes all of them at once. The chart has
	// the same numbers (_memory.tpl), as a spec proves.
	idleMemory = 64 << 20
	keyMemory  = 4 << 10
)

// memoryFor returns how many bytes a server needs for so many keys.
func memoryFor(keys int) int64 { return idleMemory + keyMemory*int64(keys) }

// carries returns for how many keys the memory of a server suffices whose
// GOMEMLIMIT is limit, four fifths of what it may take.
func carries(limit int64) int { return int(max(0, limit/4*5-idleMemory) / keyMemory) }
