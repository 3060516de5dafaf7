package bench

import (
	"fmt"
	"strings"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kv8s/curl-me-that/proto/annotation"
)

// dataKey is the key that is filled.
const dataKey = "my-data"

// theirKey is one that belongs to others, and theirSize how much it holds where
// its size does not matter, in bytes.
const (
	theirKey  = "theirs"
	theirSize = 32
)

// sharedPath is the path at the origin that all ask for with -shared.
const sharedPath = "/shared"

// name returns the name of a ConfigMap.
func name(kind string, i int) string { return fmt.Sprintf("%s-%06d", kind, i) }

// plain makes ConfigMaps that ask for nothing.
func plain(kind string, size int) func(i int) *corev1.ConfigMap {
	return func(i int) *corev1.ConfigMap {
		return &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: name(kind, i)},
			Data:       map[string]string{theirKey: theirs(size)},
		}
	}
}

func theirs(size int) string { return strings.Repeat("x", size) }

// annotated makes the ConfigMaps that the pipeline fills.
func (b *bench) annotated(i int) *corev1.ConfigMap { return b.asking(name("piped", i)) }

// asking makes a ConfigMap that asks for its page.
func (b *bench) asking(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{annotation.DefaultKey: b.wish(name)}},
		Data:       map[string]string{theirKey: theirs(theirSize)},
	}
}

// wish returns the value of the annotation of a ConfigMap, whose page it makes.
func (b *bench) wish(name string) string {
	path := b.path(name)
	b.origin.Page(path).Says(b.body(name))
	return dataKey + "=http://" + b.origin.PageByAddress(path)
}

// body returns what a ConfigMap is filled with.
func (b *bench) body(name string) string { return body(b.path(name), b.config.Size) }

// path returns the path at the origin that a ConfigMap asks for.
func (b *bench) path(name string) string {
	if b.config.Shared {
		return sharedPath
	}
	return "/" + name
}

// step returns a function that prints how far it is each time that a quarter of
// total is done.
func (b *bench) step(total int) func() {
	var done atomic.Int64
	quarter := int64(max(total/4, 1))
	return func() {
		if n := done.Add(1); n%quarter == 0 {
			b.progress("  %d of %d", n, total)
		}
	}
}
