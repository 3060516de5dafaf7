package apply

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kv8s/curl-me-that/writer/internal/judge"
)

// learn replaces what is known of the object; nil: it does not exist.
func (t *task) learn(o *judge.Object) {
	t.object, t.known = o, true
	if o == nil {
		t.memory.drop(t.ref)
		return
	}
	if o.Obstacle == judge.NoObstacle {
		o.Obstacle = t.obstacle
	}
}

// forget makes the next try read the object.
func (t *task) forget() {
	t.memory.drop(t.ref)
	t.object, t.known = nil, false
}

// readMetadata learns the object from its metadata.
func (t *task) readMetadata(ctx context.Context) error {
	t.Metrics.reads.WithLabelValues(readMetadata).Inc()
	read, err := t.Client.readMetadata(ctx, t.ref)
	if err != nil {
		return t.missing(err)
	}
	t.learn(t.View.Of(&read.ObjectMeta, judge.Live))
	return nil
}

// readObject learns the object with its values.
func (t *task) readObject(ctx context.Context) error {
	t.Metrics.reads.WithLabelValues(readObject).Inc()
	read, err := t.Client.readObject(ctx, t.ref)
	if err != nil {
		return t.missing(err)
	}
	o := t.View.Of(&read.ObjectMeta, judge.Live)
	o.Values = digests(read)
	if read.Immutable != nil && *read.Immutable {
		o.Obstacle = judge.Immutable
	}
	t.learn(o)
	return nil
}

// missing learns from an error that there is no object, or returns it.
func (t *task) missing(err error) error {
	if classify(err) != gone {
		return err
	}
	t.learn(nil)
	return nil
}

// patch sends a plan and remembers what the object is like then.
func (t *task) patch(ctx context.Context, plan judge.Plan) error {
	written, err := t.send(ctx, plan)
	t.Metrics.patches.WithLabelValues(classify(err).String()).Inc()
	if err != nil {
		return err
	}
	t.memory.put(t.ref, t.View.Of(&written.ObjectMeta, judge.Remembered))
	return nil
}

// send encodes a plan and sends it.
func (t *task) send(ctx context.Context, plan judge.Plan) (*metav1.PartialObjectMetadata, error) {
	if beginsRecord(t.object, plan) {
		body, err := encodeApply(t.ref, t.object, plan)
		if err != nil {
			return nil, err
		}
		return t.Client.apply(ctx, t.ref, body)
	}
	body, err := encode(t.object, plan)
	if err != nil {
		return nil, err
	}
	return t.Client.patch(ctx, t.ref, body)
}
