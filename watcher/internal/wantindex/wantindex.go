// Package wantindex holds the wants that the stream of requests has: which
// message each key has, and what it asks for.
package wantindex

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"slices"
	"sync"
	"time"
	"unique"

	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/rule"
	"github.com/kv8s/curl-me-that/proto/status"
	"github.com/kv8s/curl-me-that/watcher/internal/informer"
)

// Want is the want of one key as the stream has it.
type Want struct {
	// Fence orders it: the epoch that it carries, usually that of the stream, and
	// the sequence of the message.
	Fence status.Fence
	// Digest is of what it asks for: object, URL, interval, digest.
	Digest [16]byte
	// Now is the value of curl-now that it carries.
	Now string
	// Drift is the fingerprint of the drift that it is to repair.
	Drift string
	// Refreshes reports whether it has an interval.
	Refreshes bool
	// Requested reports that a person asked for a fetch although the key held its
	// body, so that a body which never lands cannot be distinguished from an equal one.
	Requested bool
	// Version is the resource version of the object that it was read from; 0:
	// not a number.
	Version uint64
	// At is when it was published.
	At time.Time
	// Finding is what the last audit found about it.
	Finding Finding
	// Resolved reports that the object was once seen with an answer to it.
	Resolved bool
}

// Finding is what an audit finds about a want, from a closed set.
type Finding string

// NothingLost is found about a want that is as it should be.
const NothingLost = ""

const (
	// BodyLost: the key does not hold its body, and nothing is under way.
	BodyLost Finding = "body_lost"
	// Refused: it still does not after it was asked for again.
	Refused Finding = "refused"
	// TimerLost: the key holds its body, and nothing will refresh it.
	TimerLost Finding = "timer_lost"
	// StreamBehind: it holds what came later than all that the stream has.
	StreamBehind Finding = "stream_behind"
)

// Of returns what is to be known of a want that the stream of the given epoch
// has. A want of an earlier epoch asks for nothing: its results would count as
// older than those that the object holds. One of a later epoch is what it took
// to come after those.
func Of(w *v1.Want, epoch int64, seq uint64, at time.Time) Want {
	if w.GetEpoch() < epoch {
		return Unreadable(epoch, seq, at)
	}
	return Want{
		Fence:     status.Fence{Epoch: w.GetEpoch(), Seq: seq},
		Digest:    Digest(w),
		Now:       w.GetNow(),
		Drift:     w.GetDrift(),
		Refreshes: w.GetRefresh().AsDuration() > 0,
		Requested: w.GetCause() == v1.Cause_CAUSE_NOW,
		Version:   informer.Version(w.GetResourceVersion()),
		At:        at,
	}
}

// Unreadable is what is to be known of a message that is no want: that it is
// there, and different from anything wanted.
func Unreadable(epoch int64, seq uint64, at time.Time) Want {
	return Want{Fence: status.Fence{Epoch: epoch, Seq: seq}, At: at}
}

// Digest returns that of what a want asks for, curl-now and drift left out.
func Digest(w *v1.Want) (digest [16]byte) {
	h := sha256.New()
	for _, s := range []string{w.GetUid(), w.GetUrl(), w.GetSha256(), rule.Of(w).Digest()} {
		_ = binary.Write(h, binary.BigEndian, uint32(len(s)))
		_, _ = h.Write([]byte(s))
	}
	_ = binary.Write(h, binary.BigEndian, int64(w.GetRefresh().AsDuration()))
	copy(digest[:], h.Sum(nil))
	return digest
}

// Index holds the wants of all keys, by object. It is safe for concurrent use.
type Index struct {
	mu      sync.RWMutex
	epoch   int64
	objects map[types.NamespacedName][]keyed
	keys    int
}

// keyed is the want of one key. The wants of an object are a slice, sorted by
// key: a map has room for eight, and most objects have one.
type keyed struct {
	key  string
	want Want
}

func byKey(k keyed, key string) int { return cmp.Compare(k.key, key) }

// NewIndex returns an empty index.
func NewIndex() *Index { return &Index{objects: map[types.NamespacedName][]keyed{}} }

// ObjectOf returns the name of the object that a key is of.
func ObjectOf(key pipeline.Key) types.NamespacedName {
	return types.NamespacedName{Namespace: key.Namespace, Name: key.Name}
}

// KeyOf returns a key of an object.
func KeyOf(object types.NamespacedName, key string) pipeline.Key {
	return pipeline.Key{Namespace: object.Namespace, Name: object.Name, Key: key}
}

// find returns the wants of the object of a key, and where among them that of the key
// is or would be. The caller holds the lock.
func (x *Index) find(key pipeline.Key) (wants []keyed, at int, found bool) {
	wants = x.objects[ObjectOf(key)]
	at, found = slices.BinarySearchFunc(wants, key.Key, byKey)
	return wants, at, found
}

// Object returns a copy of the wants of an object by key.
func (x *Index) Object(name types.NamespacedName) map[string]Want {
	x.mu.RLock()
	defer x.mu.RUnlock()
	wants := make(map[string]Want, len(x.objects[name]))
	for _, k := range x.objects[name] {
		wants[k.key] = k.want
	}
	return wants
}

// Want returns the want of a key, if there is one.
func (x *Index) Want(key pipeline.Key) (w Want, found bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	wants, at, found := x.find(key)
	if !found {
		return w, false
	}
	return wants[at].want, true
}

// Put records the want of a key.
func (x *Index) Put(key pipeline.Key, w Want) {
	key.Key, key.Namespace = unique.Make(key.Key).Value(), unique.Make(key.Namespace).Value()
	x.mu.Lock()
	defer x.mu.Unlock()
	wants, at, found := x.find(key)
	if found {
		wants[at].want = w
		return
	}
	x.objects[ObjectOf(key)] = slices.Concat(wants[:at], []keyed{{key.Key, w}}, wants[at:])
	x.keys++
}

// Expect records that the stream may get a want of a key, unless it has one. It has no
// sequence until it is known.
func (x *Index) Expect(key pipeline.Key, at time.Time) {
	if _, found := x.Want(key); !found {
		x.Put(key, Unreadable(x.Epoch(), 0, at))
	}
}

// Drop removes the want of a key.
func (x *Index) Drop(key pipeline.Key) {
	x.mu.Lock()
	defer x.mu.Unlock()
	wants, at, found := x.find(key)
	if !found {
		return
	}
	x.keys--
	if len(wants) == 1 {
		delete(x.objects, ObjectOf(key))
		return
	}
	x.objects[ObjectOf(key)] = slices.Delete(wants, at, at+1)
}

// Epoch returns the epoch of the stream that the index was read from.
func (x *Index) Epoch() int64 {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.epoch
}

// Reset replaces all that is known by what was read from the stream.
func (x *Index) Reset(epoch int64, wants map[pipeline.Key]Want) {
	fresh := NewIndex()
	for key, w := range wants {
		fresh.Put(key, w)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.epoch, x.objects, x.keys = epoch, fresh.objects, fresh.keys
}

// Names returns the names of all objects that have wants.
func (x *Index) Names() []types.NamespacedName {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return slices.AppendSeq(make([]types.NamespacedName, 0, len(x.objects)), maps.Keys(x.objects))
}

// Len returns the number of keys that have wants.
func (x *Index) Len() int {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.keys
}

// Oldest returns the want with the lowest known sequence, if there is any.
func (x *Index) Oldest() (key pipeline.Key, seq uint64, ok bool) {
	x.Each(func(k pipeline.Key, w Want) {
		if w.Fence.Seq > 0 && (!ok || w.Fence.Seq < seq) {
			key, seq, ok = k, w.Fence.Seq, true
		}
	})
	return key, seq, ok
}

// Each calls visit for every want. It holds a lock, so visit must be quick.
func (x *Index) Each(visit func(pipeline.Key, Want)) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	for name, wants := range x.objects {
		for _, k := range wants {
			visit(KeyOf(name, k.key), k.want)
		}
	}
}

// Update changes what is known of the want of a key, if anything is.
func (x *Index) Update(key pipeline.Key, change func(*Want)) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if wants, at, found := x.find(key); found {
		change(&wants[at].want)
	}
}
