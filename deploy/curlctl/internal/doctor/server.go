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

// SyncInterval returns how a server writes to disk: always before it
// acknowledges, or after an interval. The connection must be to the system
// account.
func SyncInterval(ctx context.Context, nc *nats.Conn) (always bool, interval time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	m, err := nc.RequestWithContext(ctx, "$SYS.REQ.SERVER.PING.VARZ", nil)
	if err != nil {
		return false, 0, fmt.Errorf("ask the system account: %w", err)
	}
	var answer struct {
		Data struct {
			JetStream struct {
				Config *struct {
					Interval time.Duration `json:"sync_interval"`
					Always   bool          `json:"sync_always"`
				} `json:"config"`
			} `json:"jetstream"`
		} `json:"data"`
	}
	if err := json.Unmarshal(m.Data, &answer); err != nil {
		return false, 0, fmt.Errorf("read the answer of the server: %w", err)
	}
	config := answer.Data.JetStream.Config
	if config == nil {
		return false, 0, errors.New("the server reports nothing about its JetStream")
	}
	return config.Always, config.Interval, nil
}
