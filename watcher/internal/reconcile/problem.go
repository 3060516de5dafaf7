package reconcile

import (
	"context"
	"crypto/sha256"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/status"
	"github.com/kv8s/curl-me-that/watcher/internal/annotated"
	"github.com/kv8s/curl-me-that/watcher/internal/plan"
	"github.com/kv8s/curl-me-that/watcher/internal/wantindex"
)

// maxReportPause is the longest pause before what is wrong with annotations is
// reported once more.
const maxReportPause = time.Hour

// reported is what the writer was asked to bring the status in line with.
type reported struct {
	uid    types.UID
	digest [sha256.Size]byte
	epoch  int64
	at     time.Time
	times  int
}

// digestOf returns the digest of what a plan would have in the status, which takes less
// memory than the text.
func digestOf(p *plan.Plan) [sha256.Size]byte {
	return sha256.Sum256([]byte(strings.Join(append(p.Occupied, p.Problem), "\x00")))
}

// pause returns how long the writer has. It may be kept from writing, or somebody
// may take out what it writes, so that it grows.
func (s reported) pause(repeat time.Duration) time.Duration {
	return min(repeat<<min(s.times-1, 10), max(repeat, maxReportPause))
}

// dropReported takes the report out of the plan that the writer was asked for a
// short while ago. It returns when to look whether the status has it.
func (r *Reconciler) dropReported(name types.NamespacedName, o *annotated.Object, p *plan.Plan) (again time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	sent, ok := r.reports.of[name]
	same := ok && o != nil && sent.uid == o.UID && sent.digest == digestOf(p)
	if !p.Report {
		// What is in line may be taken out again, as by a controller that resets
		// annotations: the pause goes on growing then.
		if !same || r.reports.over(sent) {
			delete(r.reports.of, name)
		}
		return 0
	}
	if !same || sent.epoch != r.deps.Index.Epoch() {
		delete(r.reports.of, name)
		return r.config.Repeat
	}
	if wait := sent.pause(r.config.Repeat) - r.deps.Clock.Since(sent.at); wait > 0 {
		p.Report = false
		return wait
	}
	return r.config.Repeat
}

// reportProblem asks the writer to bring the status in line with what is wrong with
// the annotations, and with keys that somebody else has written.
func (r *Reconciler) reportProblem(ctx context.Context, o *annotated.Object, p *plan.Plan) error {
	key := wantindex.KeyOf(o.NamespacedName, status.ObjectKey)
	_, err := r.traced(ctx, pipeline.KindRemoved, key, problems, func(ctx context.Context) (uint64, error) {
		return 0, r.deps.Client.PublishResult(ctx, plan.Problems(o))
	})
	if err != nil {
		return err
	}
	r.deps.Metrics.problems.Inc()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reports.put(o.NamespacedName, reported{
		uid: o.UID, digest: digestOf(p), epoch: r.deps.Index.Epoch(),
		at: r.deps.Clock.Now(), times: r.reports.of[o.NamespacedName].times + 1,
	})
	return nil
}
