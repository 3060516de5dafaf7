// Package wantindex caches the wants in the stream of requests.
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
	"github.com/kv8s/curl-me-that/proto/kube"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/rule"
	"github.com/kv8s/curl-me-that/proto/status"
)

// Want is the cached part of one key's want.
type Want struct {
	// Fence is the want's epoch, usually the stream's, and the sequence of the message.
	Fence status.Fence
	// RequestHash covers uid, URL, interval, digest and rules.
	RequestHash [16]byte
	// Now is the value of curl-now.
	Now string
	// Fingerprint identifies the owner whose change the want repairs. It is empty if the want repairs nothing.
	Fingerprint string
	// Refreshes reports whether the want has an interval.
	Refreshes bool
	// ByNow means that `curl-now` asked for a fetch. An equal body brings no new status then, and neither does a lost
	// result, so the audit has to tell the two apart.
	ByNow bool
	// Stale: when the audit last read the timer, there was no good fetch for failure.StaleIntervals.
	Stale bool
	// Version is the resource version of the object when the want was made (0: not a number).
	Version uint64
	// At is the time of the publish.
	At time.Time
	// Finding is the result of the last audit.
	Finding Finding
	// Answered reports that the object once had a result of this want.
	Answered bool
}

// Finding is the result of an audit of a want.
type Finding string

const (
	// NothingLost: the want is in order.
	NothingLost Finding = ""
	// BodyLost: the key does not hold its body, and no fetch is pending.
	BodyLost Finding = "body_lost"
	// BodyLostAgain: the same after another fetch.
	BodyLostAgain Finding = "body_lost_again"
	// TimerLost: the key has its body, but will not be refreshed. Either it has no timer, or the object's fence is newer
	// than the stream (a restored backup), so the writer would drop the result.
	TimerLost Finding = "timer_lost"
)

// FromWant returns the cached part of a want. A want of an earlier epoch counts as unreadable, because
// its results would be older than the object's fences. One of a later epoch was published to exceed
// those.
func FromWant(w *v1.Want, epoch int64, seq uint64, at time.Time) Want {
	if w.GetEpoch() < epoch {
		return Unreadable(epoch, seq, at)
	}
	return FromHashed(w, RequestHash(w), seq, at)
}

// FromHashed is FromWant for a want of this epoch or a later one whose RequestHash is known.
func FromHashed(w *v1.Want, hash [16]byte, seq uint64, at time.Time) Want {
	return Want{
		Fence: status.Fence{Epoch: w.GetEpoch(), Seq: seq}, RequestHash: hash, Now: w.GetNow(),
		Fingerprint: w.GetFingerprint(), Refreshes: w.GetRefresh().AsDuration() > 0,
		ByNow: w.GetCause() == v1.Cause_CAUSE_NOW, Version: kube.ParseVersion(w.GetResourceVersion()), At: at,
	}
}

// Unreadable stands for a message that is not a want: it exists, and differs from every request.
func Unreadable(epoch int64, seq uint64, at time.Time) Want {
	return Want{Fence: status.Fence{Epoch: epoch, Seq: seq}, At: at}
}

// RequestHash returns the hash of a want's request, without curl-now and fingerprint.
func RequestHash(w *v1.Want) (hash [16]byte) {
	h := sha256.New()
	for _, s := range []string{w.GetUid(), w.GetUrl(), w.GetSha256(), rule.SetOf(w).Hash()} {
		_ = binary.Write(h, binary.BigEndian, uint32(len(s)))
		_, _ = h.Write([]byte(s))
	}
	_ = binary.Write(h, binary.BigEndian, int64(w.GetRefresh().AsDuration()))
	copy(hash[:], h.Sum(nil))
	return hash
}

// Index holds the wants of all keys, by object. It is safe for concurrent use.
type Index struct {
	mu      sync.RWMutex
	epoch   int64
	objects map[types.NamespacedName][]keyed
	keys    int
}

// keyed is the want of one key. Slices sorted by key save memory, because most objects have one key
// and a map has room for eight.
type keyed struct {
	key  string
	want Want
}

// NewIndex returns an empty index.
func NewIndex() *Index { return &Index{objects: map[types.NamespacedName][]keyed{}} }

// ObjectOf returns the object of a key.
func ObjectOf(key pipeline.Key) types.NamespacedName {
	return types.NamespacedName{Namespace: key.Namespace, Name: key.Name}
}

// KeyOf returns a key of an object.
func KeyOf(object types.NamespacedName, key string) pipeline.Key {
	return pipeline.Key{Namespace: object.Namespace, Name: object.Name, Key: key}
}

// find returns the wants of a key's object and the position of the key. The caller holds the lock.
func (i *Index) find(key pipeline.Key) (wants []keyed, at int, found bool) {
	wants = i.objects[ObjectOf(key)]
	at, found = slices.BinarySearchFunc(wants, key.Key, func(k keyed, key string) int { return cmp.Compare(k.key, key) })
	return wants, at, found
}

// Wants returns a copy of the wants of an object, by key.
func (i *Index) Wants(name types.NamespacedName) map[string]Want {
	i.mu.RLock()
	defer i.mu.RUnlock()
	wants := make(map[string]Want, len(i.objects[name]))
	for _, k := range i.objects[name] {
		wants[k.key] = k.want
	}
	return wants
}

// Want returns the want of a key, if any.
func (i *Index) Want(key pipeline.Key) (w Want, found bool) {
	i.mu.RLock()
	defer i.mu.RUnlock()
	wants, at, found := i.find(key)
	if !found {
		return w, false
	}
	return wants[at].want, true
}

// Put sets the want of a key.
func (i *Index) Put(key pipeline.Key, w Want) {
	key.Key, key.Namespace = unique.Make(key.Key).Value(), unique.Make(key.Namespace).Value()
	i.mu.Lock()
	defer i.mu.Unlock()
	wants, at, found := i.find(key)
	if found {
		wants[at].want = w
		return
	}
	i.objects[ObjectOf(key)] = slices.Concat(wants[:at], []keyed{{key.Key, w}}, wants[at:])
	i.keys++
}

// Reserve records, unless the key has a want, that the stream may get one. Its sequence is still
// unknown.
func (i *Index) Reserve(key pipeline.Key, at time.Time) {
	if _, found := i.Want(key); !found {
		i.Put(key, Unreadable(i.Epoch(), 0, at))
	}
}

// Drop removes the want of a key.
func (i *Index) Drop(key pipeline.Key) {
	i.mu.Lock()
	defer i.mu.Unlock()
	wants, at, found := i.find(key)
	if !found {
		return
	}
	i.keys--
	if len(wants) == 1 {
		delete(i.objects, ObjectOf(key))
		return
	}
	i.objects[ObjectOf(key)] = slices.Delete(wants, at, at+1)
}

// Epoch returns the epoch of the stream that was read.
func (i *Index) Epoch() int64 {
	i.mu.RLock()
	defer i.mu.RUnlock()
	return i.epoch
}

// Reset replaces all wants.
func (i *Index) Reset(epoch int64, wants map[pipeline.Key]Want) {
	fresh := NewIndex()
	for key, w := range wants {
		fresh.Put(key, w)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.epoch, i.objects, i.keys = epoch, fresh.objects, fresh.keys
}

// Names returns the objects with wants.
func (i *Index) Names() []types.NamespacedName {
	i.mu.RLock()
	defer i.mu.RUnlock()
	return slices.AppendSeq(make([]types.NamespacedName, 0, len(i.objects)), maps.Keys(i.objects))
}

// Len returns the number of keys with wants.
func (i *Index) Len() int {
	i.mu.RLock()
	defer i.mu.RUnlock()
	return i.keys
}

// Oldest returns the want with the lowest known sequence, if any.
func (i *Index) Oldest() (key pipeline.Key, seq uint64, ok bool) {
	i.Each(func(k pipeline.Key, w Want) {
		if w.Fence.Seq > 0 && (!ok || w.Fence.Seq < seq) {
			key, seq, ok = k, w.Fence.Seq, true
		}
	})
	return key, seq, ok
}

// Each holds a lock while it calls visit.
func (i *Index) Each(visit func(pipeline.Key, Want)) {
	i.mu.RLock()
	defer i.mu.RUnlock()
	for name, wants := range i.objects {
		for _, k := range wants {
			visit(KeyOf(name, k.key), k.want)
		}
	}
}

// RecordAnswer records that the object has a result of the want.
func (i *Index) RecordAnswer(key pipeline.Key) { i.update(key, func(w *Want) { w.Answered = true }) }

// RecordInSync records that the key holds the requested body, so that the next drift needs a new want.
func (i *Index) RecordInSync(key pipeline.Key) {
	i.update(key, func(w *Want) { w.Answered, w.Fingerprint = true, "" })
}

// RecordAudit records what the audit found. A finding stays until a new want, and a want by curl-now is like any other
// once it is in order.
func (i *Index) RecordAudit(key pipeline.Key, f Finding, stale, inOrder bool) {
	i.update(key, func(w *Want) {
		w.Stale, w.ByNow, w.Finding = stale, w.ByNow && !inOrder, cmp.Or(f, w.Finding)
	})
}

// update changes the want of a key, if any.
func (i *Index) update(key pipeline.Key, change func(*Want)) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if wants, at, found := i.find(key); found {
		change(&wants[at].want)
	}
}
