package apply

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/writer/internal/apiserver"
	"github.com/kv8s/curl-me-that/writer/internal/plan"
)

// maxCached is the maximum encoded size of cached metadata, so that all of it takes at most 32 MiB.
const maxCached = 16 << 10

// learn sets the current object. Nil means that it does not exist.
func (t *task) learn(o *plan.Object) {
	t.object, t.known = o, true
	if o == nil {
		t.objects.Drop(t.ref)
		return
	}
	if o.Obstacle == plan.NoObstacle {
		o.Obstacle = t.obstacle
	}
}

// forget makes the next attempt read the object.
func (t *task) forget() {
	t.objects.Drop(t.ref)
	t.object, t.known = nil, false
}

func (t *task) readMetadata(ctx context.Context) error {
	t.deps.Metrics.reads.WithLabelValues(kindMetadata).Inc()
	read, err := t.deps.Client.Metadata(ctx, t.ref)
	if err != nil {
		return t.missing(err)
	}
	t.learn(t.config.Decoder.Decode(&read.ObjectMeta, plan.Live))
	return nil
}

func (t *task) readObject(ctx context.Context) error {
	t.deps.Metrics.reads.WithLabelValues(kindObject).Inc()
	read, err := t.deps.Client.ConfigMap(ctx, t.ref)
	if err != nil {
		return t.missing(err)
	}
	o := t.config.Decoder.Decode(&read.ObjectMeta, plan.Live)
	o.Values, o.Pages = map[string]string{}, map[string]bool{}
	learn := func(key string, value []byte) {
		o.Values[key], o.Pages[key] = pipeline.Digest(value), plan.IsHTML(value)
	}
	for key, value := range read.Data {
		learn(key, []byte(value))
	}
	for key, value := range read.BinaryData {
		learn(key, value)
	}
	if read.Immutable != nil && *read.Immutable {
		o.Obstacle = plan.Immutable
	}
	t.learn(o)
	return nil
}

// missing notes that the object does not exist if err says so, and returns any other error.
func (t *task) missing(err error) error {
	if apiserver.Classify(err) != apiserver.Gone {
		return err
	}
	t.learn(nil)
	return nil
}

// patch sends a plan and caches the resulting metadata.
func (t *task) patch(ctx context.Context, p plan.Plan) error {
	written, err := t.send(ctx, p)
	t.deps.Metrics.patches.WithLabelValues(string(apiserver.Classify(err))).Inc()
	if err != nil {
		return err
	}
	t.stripped = p.SetStatus && written.Annotations[annotation.StatusKey] != p.Status
	if t.stripped {
		t.deps.Breaker.Success(t.ref.Namespace)
	}
	if t.objects.Drop(t.ref); written.Size() <= maxCached {
		t.objects.Put(t.ref, &written.ObjectMeta)
	}
	return nil
}

func (t *task) send(ctx context.Context, p plan.Plan) (*metav1.PartialObjectMetadata, error) {
	if beginsRecord(t.object, p) {
		body, err := encodeApply(t.ref, t.object, p)
		if err != nil {
			return nil, err
		}
		return t.deps.Client.Apply(ctx, t.ref, body)
	}
	body, err := encode(t.object, p)
	if err != nil {
		return nil, err
	}
	return t.deps.Client.Patch(ctx, t.ref, body)
}
