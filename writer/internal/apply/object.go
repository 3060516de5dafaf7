package apply

import (
	"context"

	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/writer/internal/apiserver"
	"github.com/kv8s/curl-me-that/writer/internal/plan"
)

// maxCached is the maximum encoded size of cached metadata, so that all of it takes at most 32 MiB.
const maxCached = 16 << 10

// setObject sets the current object. Nil means that it does not exist.
func (t *task) setObject(o *plan.Object) {
	t.object, t.known = o, true
	if o == nil {
		t.objects.Drop(t.ref)
	}
}

// forget makes the next attempt read the object.
func (t *task) forget() {
	t.objects.Drop(t.ref)
	t.object, t.known = nil, false
}

func (t *task) readMetadata(ctx context.Context) error {
	t.deps.Metrics.reads.WithLabelValues(kindMetadata).Inc()
	read, err := t.deps.Client.Read(ctx, t.ref, false)
	if err != nil {
		return t.readFailed(err)
	}
	t.setObject(t.deps.Decoder.Decode(&read.ObjectMeta, plan.Live))
	return nil
}

func (t *task) readObject(ctx context.Context) error {
	t.deps.Metrics.reads.WithLabelValues(kindObject).Inc()
	read, err := t.deps.Client.Read(ctx, t.ref, true)
	if err != nil {
		return t.readFailed(err)
	}
	o := t.deps.Decoder.Decode(&read.ObjectMeta, plan.Live)
	o.Values, o.Pages = map[string]string{}, map[string]bool{}
	add := func(key string, value []byte) {
		o.Values[key], o.Pages[key] = pipeline.Digest(value), plan.IsHTML(value)
	}
	for key, value := range read.Data {
		add(key, []byte(value))
	}
	for key, value := range read.BinaryData {
		add(key, value)
	}
	o.Immutable = read.Immutable != nil && *read.Immutable
	t.setObject(o)
	return nil
}

// readFailed sets no object if err says that it does not exist, and returns any other error.
func (t *task) readFailed(err error) error {
	if apiserver.Classify(err) != apiserver.Gone {
		return err
	}
	t.setObject(nil)
	return nil
}
