package reconcile

import (
	"crypto/sha256"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kv8s/curl-me-that/watcher/internal/annotated"
	"github.com/kv8s/curl-me-that/watcher/internal/plan"
	"github.com/kv8s/curl-me-that/watcher/internal/queue"
)

// recent is the recent work on one object.
type recent struct {
	// published is the time of the last publish, and sent the last message to the writer.
	published time.Time
	sent      sentSync
	// repairs has the repairs by key.
	repairs map[string]*queue.Repairs
}

// maxSyncPause is the maximum pause before a message to the writer is repeated.
const maxSyncPause = time.Hour

// sentSync is the last message that asked the writer to sync an object.
type sentSync struct {
	uid types.UID
	// explain is a hash of the problems for the status, and remove has the keys to remove.
	explain [sha256.Size]byte
	remove  []string
	epoch   int64
	at      time.Time
	times   int
}

// syncOf returns the message that a plan needs.
func syncOf(o *annotated.Object, p *plan.Plan) sentSync {
	text := p.Problem + "\x00" + strings.Join(p.Foreign, "\x00")
	return sentSync{uid: o.UID, explain: sha256.Sum256([]byte(text)), remove: p.Remove}
}

// same reports whether two messages have the same content.
func (s sentSync) same(other sentSync) bool {
	return s.uid == other.uid && s.explain == other.explain && slices.Equal(s.remove, other.remove)
}

// pause returns the pause before the message is repeated. It grows because the writer may lack
// permissions, or another controller may revert its changes.
func (s sentSync) pause(repeat time.Duration) time.Duration {
	return min(repeat<<min(s.times-1, 10), max(repeat, maxSyncPause))
}
