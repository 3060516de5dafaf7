package apply

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/kv8s/curl-me-that/proto/budget"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/process"
	"github.com/kv8s/curl-me-that/proto/weburl"
	"github.com/kv8s/curl-me-that/writer/internal/plan"
)

// HistoryConfig says which bodies the history keeps.
type HistoryConfig struct {
	// Bytes limits what each namespace adds, so that its large bodies do not push out those of other namespaces.
	Bytes budget.Config
	// Credentials keeps bodies that were fetched with a credential, too.
	Credentials bool
}

const (
	// bodiesTimeout is the maximum time to read the bodies that an object needs from the history.
	bodiesTimeout = 2 * time.Second
	// maxFound is the maximum size of these bodies in bytes. No ConfigMap holds more.
	maxFound = 1 << 20
	// archiveTimeout is the maximum time that the end of the writer waits for the history.
	archiveTimeout = 2 * time.Second
)

// history keeps versions of keys, and finds their bodies. No result waits for it, and its loss loses nothing else.
type history struct {
	config HistoryConfig
	// found and archive are nil without a client.
	found   *pipeline.Bodies
	archive *pipeline.Archive
	bytes   *budget.Budget
	metrics *Metrics
	lines   *process.SampledLog
}

func newHistory(
	c HistoryConfig, client *pipeline.Client, m *Metrics, lines *process.SampledLog,
) (*history, error) {
	h := &history{config: c, bytes: budget.New(c.Bytes, time.Now), metrics: m, lines: lines}
	if client == nil {
		return h, nil
	}
	h.found = client.Bodies(func(err error) {
		lines.Line(zerolog.WarnLevel, "history").Err(err).Msg("the history was not read, so nothing uses it for a minute")
	})
	var err error
	h.archive, err = client.Archive(h.kept)
	return h, err
}

// Outcomes of a version, as in metric labels.
const (
	versionKept       = "kept"
	versionFailed     = "failed"
	versionOverShare  = "over_share"
	versionCredential = "credential"
	versionPaused     = "paused"
)

// keep adds the body of an item to the history. available means that it was not written.
func (h *history) keep(ctx context.Context, i plan.Item, available bool) {
	content, want := i.Result.GetContent(), i.Result.GetWant()
	switch {
	case h.found == nil:
		return
	case h.found.Paused(): // its last response was an error
		h.metrics.versions.WithLabelValues(versionPaused).Inc()
		return
	case content.GetCredential() && !h.config.Credentials:
		h.metrics.versions.WithLabelValues(versionCredential).Inc()
		return
	case h.bytes.Take(i.Key.Namespace, int64(len(content.GetBody()))) != nil:
		h.metrics.versions.WithLabelValues(versionOverShare).Inc()
		return
	}
	// Of a batch, ctx has the trace of the first item.
	h.archive.Keep(trace.ContextWithSpanContext(ctx, i.Trace), i.Key, &v1.Version{
		Sha256: content.GetSha256(), Size: int64(len(content.GetBody())), FetchedAt: timestamppb.New(i.ObservedAt()),
		Url: weburl.WithoutQuery(want.GetUrl()), Available: available,
	}, content.GetBody(), i.Fence.String())
}

// wait waits for versions that NATS does not have yet, for a moment.
func (h *history) wait() {
	if h.archive != nil {
		h.archive.Wait(archiveTimeout)
	}
}

// kept counts a version that the history has, or lacks because of err.
func (h *history) kept(err error) {
	switch {
	case err == nil:
		h.metrics.versions.WithLabelValues(versionKept).Inc()
	case errors.Is(err, jetstream.ErrNoStreamResponse):
		h.found.Pause()
		h.metrics.versions.WithLabelValues(versionPaused).Inc()
	default:
		h.metrics.versions.WithLabelValues(versionFailed).Inc()
		h.lines.Line(zerolog.WarnLevel, "history").Err(err).Msg("a version is missing in the history")
	}
}

// find adds bodies of a namespace to found. One that is nil was not found, or was too much.
func (h *history) find(ctx context.Context, namespace string, digests []string, found map[string][]byte) {
	ctx, cancel := context.WithTimeout(ctx, bodiesTimeout)
	defer cancel()
	room := maxFound
	for _, body := range found {
		room -= len(body)
	}
	for _, digest := range digests {
		found[digest] = nil
		if h.found == nil || room < 0 {
			continue
		}
		body, _ := h.found.Find(ctx, namespace, digest)
		if room -= len(body); room >= 0 {
			found[digest] = body
		}
	}
}
