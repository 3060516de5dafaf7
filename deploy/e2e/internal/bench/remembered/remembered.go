// Package remembered measures the memory of a writer that has written to many
// large objects, which it remembers to write to them again without a read.
package remembered

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/cluster"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/keys"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/markdown"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/system"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/usage"
	"github.com/kv8s/curl-me-that/proto/annotation"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

const (
	// keysEach of an object are asked for, and held but for one.
	keysEach = 128
	// polling is how often the writer is asked for how far it is.
	polling = 100 * time.Millisecond
	// body of the one key that is missing.
	body = "as asked"
)

// Options of a measurement.
type Options struct {
	// Bin is the folder with the writer.
	Bin string
	// Objects to write to.
	Objects int
}

// Report is what was measured.
type Report struct {
	Objects int `json:"objects"`
	// Before is the writer that has written nothing, and After once it has written
	// to all.
	Before usage.Usage `json:"before"`
	After  usage.Usage `json:"after"`
}

// Run lets a writer write one key to each object of a namespace of its own.
func Run(ctx context.Context, o Options, progress func(string, ...any)) (r Report, err error) {
	r.Objects = o.Objects
	c, err := cluster.Connect()
	if err != nil {
		return r, err
	}
	namespace, err := c.NewNamespace(ctx)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, namespace.Remove(context.WithoutCancel(ctx))) }()
	s, err := system.StartWriter(ctx, system.Options{Bin: o.Bin})
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, s.Stop(ctx)) }()
	progress("creating %d ConfigMaps of %d keys", o.Objects, keysEach)
	if err := namespace.Fill(ctx, o.Objects, object); err != nil {
		return r, err
	}
	if r.Before, err = ofWriter(s); err != nil {
		return r, err
	}
	progress("writing one key to each")
	if err := write(ctx, s.NATS(), namespace); err != nil {
		return r, err
	}
	r.After, err = ofWriter(s)
	return r, err
}

func ofWriter(s *system.System) (usage.Usage, error) {
	used, err := s.Usage()
	return used["writer"], err
}

func key(n int) string { return fmt.Sprintf("key-%03d", n) }

func url(n int) string { return fmt.Sprintf("https://data.example.com/%d", n) }

// object asks for all its keys, and holds all but the first.
func object(i int) *corev1.ConfigMap {
	var pairs []string
	data := map[string]string{}
	for n := range keysEach {
		pairs = append(pairs, key(n)+"="+url(n))
		if n > 0 {
			data[key(n)] = "of somebody else"
		}
	}
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("remembered-%d", i), Annotations: map[string]string{annotation.DefaultKey: strings.Join(pairs, " ")},
		},
		Data: data,
	}
}

// write publishes a result for each object, and returns once all are done with.
func write(ctx context.Context, nats string, namespace *cluster.Namespace) error {
	objects, _, err := namespace.ConfigMaps(ctx)
	if err != nil {
		return err
	}
	publisher, err := keys.NewPublisher(ctx, nats)
	if err != nil {
		return err
	}
	defer publisher.Close()
	sum := sha256.Sum256([]byte(body))
	err = cluster.InParallel(ctx, len(objects), func(ctx context.Context, i int) error {
		o := &objects[i]
		return publisher.PublishResult(ctx, &v1.Result{
			Want: &v1.Want{
				Namespace: o.Namespace, Name: o.Name, Key: key(0), Uid: string(o.UID), ResourceVersion: o.ResourceVersion,
				Url: url(0), Epoch: publisher.Epoch, ReadFirst: true,
			},
			Sequence: uint64(i + 1),
			Outcome:  &v1.Result_Content{Content: &v1.Content{Body: []byte(body), Sha256: hex.EncodeToString(sum[:])}},
		})
	})
	if err != nil {
		return err
	}
	return written(ctx, publisher.JS, namespace)
}

// written waits until the writer has done with all results, and verifies that it
// has written the last.
func written(ctx context.Context, js jetstream.JetStream, namespace *cluster.Namespace) error {
	for {
		stream, err := js.Stream(ctx, pipeline.Results)
		if err != nil {
			return fmt.Errorf("look up stream %s: %w", pipeline.Results, err)
		}
		if stream.CachedInfo().State.Msgs == 0 {
			break
		}
		if err := system.Pause(ctx, polling); err != nil {
			return err
		}
	}
	objects, _, err := namespace.ConfigMaps(ctx)
	if err != nil {
		return err
	}
	for i := range objects {
		if objects[i].Data[key(0)] != body {
			return fmt.Errorf("ConfigMap %s was not written", objects[i].Name)
		}
	}
	return nil
}

// WriteTable writes the report as Markdown.
func (r Report) WriteTable(w io.Writer) error {
	t := markdown.New("writer", "RSS, MiB", "peak")
	row := func(name string, u usage.Usage) {
		t.Row(name, "%.0f | %.0f", float64(u.RSS)/(1<<20), float64(u.PeakRSS)/(1<<20))
	}
	row("that has written nothing", r.Before)
	row(fmt.Sprintf("that remembers %d objects of %d keys", r.Objects, keysEach), r.After)
	return t.Write(w)
}
