package replay

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/pipeline/operate"
)

// Outcome is what became of a replay.
type Outcome string

// The outcomes.
const (
	// Fetched: the body was fetched and handed to the writer.
	Fetched Outcome = "fetched"
	// FailedAgain: all attempts failed; there is a new failure.
	FailedAgain Outcome = "failed again"
	// Superseded: something else is wanted meanwhile, or nothing.
	Superseded Outcome = "superseded"
	// Pending: not known yet.
	Pending Outcome = "pending"
)

// End is what became of one item.
type End struct {
	// Outcome of the replay.
	Outcome Outcome
	// Failure is the new one when it failed again.
	Failure *operate.DeadLetter
}

// Follower follows what becomes of replays: at once from the messages as they
// pass, and, since such a message may be lost on the way to this process, now
// and then from what the streams hold.
type Follower struct {
	client *operate.Client
	subs   []*nats.Subscription
	// last sequence in Failures before the first replay.
	last uint64

	mu   sync.Mutex
	keys map[pipeline.Key]*Item
	ends map[pipeline.Key]End
	news chan struct{}
}

// Follow begins to listen; call it before Request. It subscribes to
// contents, dead letters and wants.
func Follow(ctx context.Context, client *operate.Client, items []*Item) (*Follower, error) {
	failures, err := client.JetStream().Stream(ctx, pipeline.Failures)
	if err != nil {
		return nil, err
	}
	f := &Follower{
		client: client, last: failures.CachedInfo().State.LastSeq,
		keys: map[pipeline.Key]*Item{}, ends: map[pipeline.Key]End{}, news: make(chan struct{}, 1),
	}
	for _, item := range items {
		if item.Verdict == Wanted {
			f.keys[item.Key] = item
		}
	}
	nc := client.JetStream().Conn()
	for subject, take := range map[string]nats.MsgHandler{
		pipeline.KindContent.All(): f.result, pipeline.DeadLetterSubjects("", "", pipeline.Key{}): f.failure, pipeline.KindWant.All(): f.want,
	} {
		sub, err := nc.Subscribe(subject, take)
		if err != nil {
			f.Close()
			return nil, err
		}
		f.subs = append(f.subs, sub)
	}
	if err := nc.Flush(); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Close ends the listening.
func (f *Follower) Close() {
	for _, sub := range f.subs {
		_ = sub.Unsubscribe()
	}
}

// set keeps an outcome; the first one counts.
func (f *Follower) set(key pipeline.Key, end End) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, followed := f.keys[key]; !followed {
		return
	}
	if _, known := f.ends[key]; known {
		return
	}
	f.ends[key] = end
	select {
	case f.news <- struct{}{}:
	default:
	}
}

func (f *Follower) item(key pipeline.Key) *Item {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.keys[key]
}

func (f *Follower) result(m *nats.Msg) {
	_, key, err := pipeline.ParseSubject(m.Subject)
	item := f.item(key)
	if err != nil || item == nil {
		return
	}
	if r, err := pipeline.DecodeResult(key, m.Data); err == nil && requestOf(r.GetWant()) == item.request {
		f.set(key, End{Outcome: Fetched})
	}
}

func (f *Follower) failure(m *nats.Msg) {
	reason, host, key, err := pipeline.ParseDeadLetter(m.Subject)
	item := f.item(key)
	if err != nil || item == nil {
		return
	}
	dead := new(v1.DeadLetter)
	if proto.Unmarshal(m.Data, dead) == nil && dead.GetReplayOf() == item.ID {
		f.set(key, End{Outcome: FailedAgain, Failure: &operate.DeadLetter{Reason: reason, Host: host, Key: key, Message: dead}})
	}
}

func (f *Follower) want(m *nats.Msg) {
	_, key, err := pipeline.ParseSubject(m.Subject)
	item := f.item(key)
	if err != nil || item == nil {
		return
	}
	if w, err := pipeline.DecodeWant(key, m.Data); err == nil && (w == nil || requestOf(w) != item.request) {
		f.set(key, End{Outcome: Superseded})
	}
}

// How often the streams are asked, and for how many keys at a time.
const (
	lookEvery = 2 * time.Second
	lookMost  = 256
)

// Wait returns when the outcome of every replayed item is known, or ctx ends.
// Progress is called at each change.
func (f *Follower) Wait(ctx context.Context, items []*Item, progress func(map[Outcome]int)) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		counts := f.Count(items)
		progress(counts)
		if counts[Pending] == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-f.news:
		case <-tick.C:
			if err := f.look(ctx, items); err != nil && ctx.Err() == nil {
				return err
			}
		}
	}
}

// End returns what became of an item.
func (f *Follower) End(item *Item) End {
	f.mu.Lock()
	defer f.mu.Unlock()
	if end, known := f.ends[item.Key]; known {
		return end
	}
	return End{Outcome: Pending}
}

// Count returns how many followed items have each outcome.
func (f *Follower) Count(items []*Item) map[Outcome]int {
	counts := map[Outcome]int{}
	for _, item := range items {
		if item.Followed() {
			counts[f.End(item).Outcome]++
		}
	}
	return counts
}

// Followed reports whether an outcome will come.
func (i *Item) Followed() bool {
	return i.Verdict == Replayed || i.Verdict == Already || i.Verdict == Sooner
}

// look reads from the streams what became of pending items.
func (f *Follower) look(ctx context.Context, items []*Item) error {
	var consumer jetstream.Consumer
	err := Retry(ctx, func(ctx context.Context) (err error) {
		consumer, err = f.client.JetStream().Consumer(ctx, pipeline.Requests, pipeline.FetcherConsumer)
		return err
	})
	if err != nil {
		return err
	}
	handled := consumer.CachedInfo().AckFloor.Stream
	looked := 0
	for _, item := range items {
		if !item.Followed() || f.End(item).Outcome != Pending {
			continue
		}
		if looked++; looked > lookMost {
			return nil
		}
		var end End
		err := Retry(ctx, func(ctx context.Context) (err error) {
			end, err = f.state(ctx, item, handled)
			return err
		})
		if err != nil {
			return err
		}
		if end.Outcome != Pending {
			f.set(item.Key, end)
		}
	}
	return nil
}

// state reads what the streams hold of one key. Up to handled, the fetchers
// have dealt with all requests.
func (f *Follower) state(ctx context.Context, item *Item, handled uint64) (End, error) {
	_, _, verdict, err := current(ctx, f.client, item)
	if err != nil || verdict != Wanted {
		return End{Outcome: Superseded}, err
	}
	// The timer first: it goes when it has fired, so that the due is there then.
	timer, err := f.client.PendingTimer(ctx, item.Key)
	if err != nil && !errors.Is(err, pipeline.ErrNoMessage) {
		return End{}, err
	}
	due, err := f.client.LastDue(ctx, item.Key)
	switch {
	case errors.Is(err, pipeline.ErrNoMessage), err == nil && due > handled:
		return End{Outcome: Pending}, nil
	case err != nil:
		return End{}, err
	case timer.Due == nil:
		return f.ended(ctx, item)
	}
	switch timer.Due.GetCause() {
	case v1.Cause_CAUSE_REFRESH, v1.Cause_CAUSE_RECHECK:
		return f.ended(ctx, item)
	default: // it is tried again
		return End{Outcome: Pending}, nil
	}
}

// ended distinguishes a good end from a bad one when nothing more will come.
func (f *Follower) ended(ctx context.Context, item *Item) (End, error) {
	filter := operate.DeadLetterFilter{Namespace: item.Key.Namespace, Name: item.Key.Name, Key: item.Key.Key}
	for failure, err := range f.client.DeadLetters(ctx, filter) {
		if err != nil {
			return End{}, err
		}
		if failure.ID <= f.last {
			break
		}
		return End{Outcome: FailedAgain, Failure: &failure}, nil
	}
	return End{Outcome: Fetched}, nil
}

// Written waits until the writer has dealt with all that was handed to it so
// far, and reports whether it has.
func (f *Follower) Written(ctx context.Context) (bool, error) {
	js := f.client.JetStream()
	var stream jetstream.Stream
	err := Retry(ctx, func(ctx context.Context) (err error) {
		stream, err = js.Stream(ctx, pipeline.Results)
		return err
	})
	if err != nil {
		return false, err
	}
	last := stream.CachedInfo().State.LastSeq
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		var consumer jetstream.Consumer
		err := Retry(ctx, func(ctx context.Context) (err error) {
			consumer, err = js.Consumer(ctx, pipeline.Results, pipeline.WriterConsumer)
			return err
		})
		if ctx.Err() != nil {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		info := consumer.CachedInfo()
		if info.NumPending == 0 && info.NumAckPending == 0 || info.AckFloor.Stream >= last {
			return true, nil
		}
		select {
		case <-ctx.Done():
			return false, nil
		case <-tick.C:
		}
	}
}
