package keys

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
	"github.com/kv8s/curl-me-that/deploy/curlctl/operate"
	"github.com/kv8s/curl-me-that/proto/annotation/weburl"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/keystate"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// Verdict on a selected failure. A Follower replaces Replayed and Already by the outcome.
type Verdict string

// The verdicts.
const (
	// Wanted: the failed request is still wanted.
	Wanted Verdict = "wanted"
	// Replayed: the fetch was requested.
	Replayed Verdict = "replayed"
	// Already: the same replay was requested within the last two minutes.
	Already Verdict = "already replayed"
	// Recovered: the key has been fetched since.
	Recovered Verdict = "recovered"
	// Gone: the key is not wanted any more.
	Gone Verdict = "gone"
	// Changed: the key has another URL, or belongs to another object.
	Changed Verdict = "changed"
	// Older: a newer failure of the same key was selected, too.
	Older Verdict = "older failure of the same key"
	// Unreadable: the failure has no request.
	Unreadable Verdict = "holds no request"
	// Fetched: the body was fetched and handed to the writer.
	Fetched Verdict = "fetched"
	// FailedAgain: all attempts failed; there is a new failure.
	FailedAgain Verdict = "failed again"
	// Superseded: the want has been changed or removed since the replay.
	Superseded Verdict = "changed meanwhile"
)

// Item is a selected failure, or a key to refetch without one.
type Item struct {
	// ID of the failure (0: none).
	ID      uint64
	Key     pipeline.Key
	Verdict Verdict
	// Begun identifies a refetch, which is Already requested if another has the same (0: the time of the call).
	Begun int64
	// Again is the new failure if it is FailedAgain, else nil.
	Again *operate.DeadLetter

	request Request
}

// concurrency is the maximum number of concurrent reads or publishes.
const concurrency = 16

// PlanReplay compares each failure with the current want and its timer. Only the newest of a key is replayed. Keys
// that were fetched since are replayed only with alsoRecovered.
func PlanReplay(
	ctx context.Context, client *operate.Client, failures iter.Seq2[operate.DeadLetter, error], alsoRecovered bool,
) ([]*Item, error) {
	var items []*Item
	for f, err := range failures {
		if err != nil {
			return nil, err
		}
		item := &Item{
			ID: f.ID, Key: f.Key, Verdict: Wanted,
			request: RequestOf(f.Message.GetWant()),
		}
		if f.Message.GetWant() == nil {
			item.Verdict = Unreadable
		}
		items = append(items, item)
	}
	slices.SortFunc(items, func(a, b *Item) int { return cmp.Compare(b.ID, a.ID) })
	seen := map[pipeline.Key]bool{}
	for _, item := range items {
		if item.Verdict == Wanted && seen[item.Key] {
			item.Verdict = Older
		}
		seen[item.Key] = true
	}
	reader := Reader{Client: client, Now: time.Now()}
	handled, err := reader.Handled(ctx)
	if err != nil {
		return nil, err
	}
	err = each(ctx, items, isWanted, nil, func(ctx context.Context, item *Item) error {
		return Retry(ctx, func(ctx context.Context) error {
			key, err := reader.One(ctx, item.Key, handled)
			if err != nil {
				return fmt.Errorf("check failure %d: %w", item.ID, err)
			}
			now := Verdict(Now(item.request, key))
			if now == Gone || now == Changed || now == Recovered && !alsoRecovered {
				item.Verdict = now
			}
			return nil
		})
	})
	return items, err
}

// Retrying adds the keys of a namespace (empty: all) that fail and have no item, because they are between two retries.
func Retrying(ctx context.Context, client *operate.Client, namespace string, items []*Item) ([]*Item, error) {
	known := map[pipeline.Key]bool{}
	for _, item := range items {
		known[item.Key] = true
	}
	for t, err := range client.Timers(ctx, namespace, "") {
		if err != nil {
			return nil, err
		}
		streams := keystate.Streams{Wanted: true, Taken: true, Due: t.Due, At: t.At, SetAt: t.SetAt}
		c := keystate.Of(keystate.Asked{}, nil, &streams, time.Now())
		if (c.State == keystate.Failing || c.Attempts > 0) && !known[t.Key] {
			items = append(items, &Item{Key: t.Key, Verdict: Wanted})
		}
	}
	return items, nil
}

// Refetch selects wanted keys to fetch without a failure. Empty fields select all.
type Refetch struct {
	Namespace, Name, Host string
	// URL is a prefix.
	URL string
	// Begun identifies the request (0: the time of the call). Another one with the same has the verdict Already.
	Begun int64
}

// Items reads the selected keys.
func (r Refetch) Items(ctx context.Context, client *operate.Client) (items []*Item, err error) {
	for w, err := range client.Wants(ctx, r.Namespace, r.Name) {
		if err != nil {
			return nil, err
		}
		if r.selects(w.Want.GetUrl()) {
			items = append(items, &Item{Key: w.Key, Verdict: Wanted, Begun: r.Begun})
		}
	}
	return items, nil
}

// Words returns the arguments of curlctl that select the same keys.
func (r Refetch) Words() []string {
	words := []string{"--all"}
	switch {
	case r.Namespace != "" && r.Name != "":
		words = []string{r.Namespace + "/" + r.Name}
	case r.Namespace != "":
		words = append(words, "--namespace="+r.Namespace)
	}
	if r.Host != "" {
		words = append(words, "--host="+r.Host)
	}
	return words
}

// selects reports whether a URL has the host and the prefix.
func (r Refetch) selects(raw string) bool {
	if r.Host != "" && !pipeline.HostIs(raw, r.Host) {
		return false
	}
	if r.URL == "" {
		return true
	}
	prefix, wrong := weburl.Canonical(r.URL, "https")
	rest, found := strings.CutPrefix(raw, prefix)
	// A prefix that ends in the host must match the whole host.
	endsInHost := strings.Count(prefix, "/") == 2
	return wrong == "" && found && (!endsInHost || rest == "" || strings.ContainsAny(rest[:1], "/?"))
}

// Skipped says how many items are skipped and why.
func Skipped(counts map[Verdict]int) (lines []string) {
	for _, skipped := range []struct {
		verdict Verdict
		why     string
	}{
		{Recovered, "recovered (--also-recovered replays them, too)"},
		{Gone, "gone"},
		{Changed, "changed to another URL or object"},
		{Older, "there is a newer one of the same key"},
		{Unreadable, "no request in it"},
		{Already, "replayed less than two minutes ago"},
	} {
		if n := counts[skipped.verdict]; n > 0 {
			lines = append(lines, "Skipped "+printer.Plural(n, "failure")+": "+skipped.why)
		}
	}
	return lines
}

func isWanted(item *Item) bool { return item.Verdict == Wanted }

// each calls do concurrently for selected items. Progress, if set, is called with the number of done items.
func each(
	ctx context.Context, items []*Item, selected func(*Item) bool, progress func(int),
	do func(context.Context, *Item) error,
) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(concurrency)
	var done atomic.Int64
	for _, item := range items {
		if !selected(item) {
			continue
		}
		if ctx.Err() != nil {
			group.Go(func() error { return context.Cause(ctx) }) // Wait must return it, even if nothing runs
			break
		}
		group.Go(func() error {
			if err := do(ctx, item); err != nil {
				return err
			}
			if n := done.Add(1); progress != nil {
				progress(int(n))
			}
			return nil
		})
	}
	return group.Wait()
}

// current reads the want of a key and compares it with the failed request.
func current(ctx context.Context, client *operate.Client, item *Item) (operate.Want, Verdict, error) {
	want, err := client.Wanted(ctx, item.Key)
	switch {
	case errors.Is(err, pipeline.ErrMalformed):
		return want, Changed, nil
	case err != nil && item.ID > 0:
		return want, Wanted, fmt.Errorf("check failure %d: %w", item.ID, err)
	case err != nil:
		return want, Wanted, err
	case want.Sequence == 0:
		return want, Gone, nil
	case item.ID > 0 && RequestOf(want.Want) != item.request:
		return want, Changed, nil
	}
	return want, Wanted, nil
}

// Verdicts counts items by verdict.
func Verdicts(items []*Item) map[Verdict]int {
	counts := map[Verdict]int{}
	for _, item := range items {
		counts[item.Verdict]++
	}
	return counts
}

// Replay requests the fetch of each wanted item, and sets its verdict. Progress, if set, is called with the
// number of requests.
func Replay(ctx context.Context, client *operate.Client, items []*Item, r Rate, progress func(int)) error {
	limiter, begun := r.limiter(), time.Now().UnixNano()
	return each(ctx, items, isWanted, progress, func(ctx context.Context, item *Item) error {
		if err := limiter.Wait(ctx); err != nil {
			return context.Cause(ctx)
		}
		verdict, tries := Wanted, 0
		err := Retry(ctx, func(ctx context.Context) (err error) {
			verdict, err = publish(ctx, client, item, cmp.Or(item.Begun, begun))
			tries++
			return err
		})
		if verdict == Already && tries > 1 {
			verdict = Replayed // by an earlier try whose acknowledgement was lost
		}
		if err == nil {
			item.Verdict = verdict
		}
		return err
	})
}

// supersededTries is the maximum number of tries if the want keeps changing.
const supersededTries = 3

// publish publishes a due for the item.
func publish(ctx context.Context, client *operate.Client, item *Item, begun int64) (Verdict, error) {
	for range supersededTries {
		want, verdict, err := current(ctx, client, item)
		if err != nil || verdict != Wanted {
			return verdict, err
		}
		want.Want.Status, want.Want.Cached = "", nil
		due := &v1.Due{Want: want.Want, WantSequence: want.Sequence}
		if err := inherit(ctx, client, item.Key, due); err != nil {
			return Wanted, err
		}
		var id string
		if item.ID > 0 {
			due.Cause, due.ReplayOf = v1.Cause_CAUSE_REPLAY, item.ID
			id = fmt.Sprintf("replay.%d.%d.%d", want.Want.GetEpoch(), item.ID, want.Sequence)
		} else {
			due.Cause = v1.Cause_CAUSE_NOW
			id = fmt.Sprintf("refetch.%d.%d", begun, want.Sequence)
		}
		duplicate, err := client.PublishDue(ctx, due, id)
		switch {
		case errors.Is(err, pipeline.ErrSuperseded):
		case duplicate:
			return Already, err
		default:
			return Replayed, err
		}
	}
	return Changed, nil
}

// inherit copies the failure state from the pending timer of the key, so that an old failure is not reported
// as new. It does not copy the known body: every response goes to the writer, which compares it with the value.
func inherit(ctx context.Context, client *operate.Client, key pipeline.Key, due *v1.Due) error {
	timer, err := client.PendingTimer(ctx, key)
	switch {
	case errors.Is(err, pipeline.ErrNoMessage), errors.Is(err, pipeline.ErrMalformed):
		return nil // nothing is known
	case err != nil:
		return err
	case timer.Due.GetWantSequence() != due.GetWantSequence(): // the timer belongs to an earlier want
		return nil
	}
	due.Reported, due.Withheld = timer.Due.GetReported(), timer.Due.GetWithheld()
	due.Detail = timer.Due.GetDetail()
	due.StatusCode, due.FirstFailedAt = timer.Due.GetStatusCode(), timer.Due.GetFirstFailedAt()
	return nil
}

const (
	// retryFor is how long one request is retried while NATS is unavailable. Server restarts, leader elections
	// and reconnects take less.
	retryFor = 2 * time.Minute
	// tryTimeout limits each try.
	tryTimeout = 5 * time.Second
)

// Retry repeats do until NATS responds, or retryFor has passed. Since an acknowledgement may get lost, do must
// be idempotent.
func Retry(ctx context.Context, do func(context.Context) error) error {
	began := time.Now()
	return repeat(ctx, func() (bool, error) {
		limited, cancel := context.WithTimeout(ctx, tryTimeout)
		defer cancel()
		err := do(limited)
		if unavailable(err) && time.Since(began) <= retryFor {
			return false, nil
		}
		return true, err
	})
}

// The pause between two tries grows from pauseFirst to pauseMax.
const (
	pauseFirst = 100 * time.Millisecond
	pauseMax   = 2 * time.Second
)

// repeat calls do until it is done or fails, or ctx ends.
func repeat(ctx context.Context, do func() (done bool, err error)) error {
	pause := wait.Backoff{Duration: pauseFirst, Factor: 2, Cap: pauseMax, Steps: math.MaxInt}.DelayFunc()
	err := pause.Until(ctx, true, true, func(context.Context) (bool, error) { return do() })
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// unavailable reports whether a server or the leader of a stream is unavailable. A stream that is not found
// counts: it existed before, so the server is still recovering it.
func unavailable(err error) bool {
	if api, ok := errors.AsType[*jetstream.APIError](err); ok {
		return api.Code == 503 || api.ErrorCode == jetstream.JSErrCodeStreamNotFound ||
			api.ErrorCode == jetstream.JSErrCodeConsumerNotFound
	}
	return slices.ContainsFunc([]error{
		context.DeadlineExceeded, nats.ErrTimeout, nats.ErrNoResponders, nats.ErrDisconnected,
		nats.ErrConnectionReconnecting, nats.ErrReconnectBufExceeded,
		jetstream.ErrNoStreamResponse, jetstream.ErrStreamNotFound, jetstream.ErrConsumerNotFound,
	}, func(temporary error) bool { return errors.Is(err, temporary) })
}

// RateUsage is the help of a flag for a Rate.
const RateUsage = "rate limit of the fetches, such as 20/s, 600/m or 1000/h (0: no limit)"

// Rate is a flag value in fetches per second (0: no limit).
type Rate float64

// Set implements pflag.Value.
func (r *Rate) Set(text string) error {
	number, unit, found := strings.Cut(text, "/")
	if !found {
		unit = "s"
	}
	seconds := map[string]float64{"s": 1, "m": 60, "h": 3600}[unit]
	n, err := strconv.ParseFloat(number, 64)
	if err != nil || seconds == 0 || n < 0 || math.IsNaN(n) || math.IsInf(n, 0) {
		return fmt.Errorf("%q is not a rate such as 20/s or 600/m", text)
	}
	*r = Rate(n / seconds)
	return nil
}

// String implements pflag.Value.
func (r *Rate) String() string {
	if *r == 0 {
		return "0"
	}
	return strconv.FormatFloat(float64(*r), 'g', -1, 64) + "/s"
}

// Type implements pflag.Value.
func (r *Rate) Type() string { return "rate" }

func (r *Rate) limiter() *rate.Limiter {
	if *r <= 0 {
		return rate.NewLimiter(rate.Inf, 1)
	}
	return rate.NewLimiter(rate.Limit(*r), 1)
}

// Follower follows the outcome of replays by reading the streams.
type Follower struct {
	client *operate.Client
	// last is the last sequence in Failures before the first replay.
	last uint64
}

// Follow returns a follower. Call it before Replay.
func Follow(ctx context.Context, client *operate.Client) (*Follower, error) {
	failures, err := client.JetStream().Stream(ctx, pipeline.Failures)
	if err != nil {
		return nil, err
	}
	return &Follower{client: client, last: failures.CachedInfo().State.LastSeq}, nil
}

// Wait returns when the outcome of every replayed item is known, or ctx ends. Progress is called after each check with
// the number of the others.
func (f *Follower) Wait(ctx context.Context, items []*Item, progress func(pending int)) error {
	return repeat(ctx, func() (bool, error) {
		err := f.check(ctx, items)
		pending := Pending(items)
		progress(pending)
		return pending == 0, err
	})
}

// Pending returns the number of replayed items without a known outcome.
func Pending(items []*Item) int {
	counts := Verdicts(items)
	return counts[Replayed] + counts[Already]
}

// check updates the verdict of all pending items.
func (f *Follower) check(ctx context.Context, items []*Item) error {
	var handled uint64
	err := Retry(ctx, func(ctx context.Context) (err error) {
		handled, err = Reader{Client: f.client}.Handled(ctx)
		return err
	})
	if err != nil {
		return err
	}
	pending := func(item *Item) bool { return item.Verdict == Replayed || item.Verdict == Already }
	return each(ctx, items, pending, nil, func(ctx context.Context, item *Item) error {
		return Retry(ctx, func(ctx context.Context) error { return f.update(ctx, item, handled) })
	})
}

// update reads the outcome of one item. The fetchers have handled all requests up to the sequence handled.
func (f *Follower) update(ctx context.Context, item *Item, handled uint64) error {
	_, verdict, err := current(ctx, f.client, item)
	if err != nil {
		return err
	}
	if verdict != Wanted {
		item.Verdict = Superseded
		return nil
	}
	// Read the timer first: if it fires meanwhile, the due exists already.
	timer, err := f.client.PendingTimer(ctx, item.Key)
	if err != nil && !errors.Is(err, pipeline.ErrNoMessage) {
		return err
	}
	due, err := f.client.LastDue(ctx, item.Key)
	retries := timer.Due != nil && timer.Due.GetCause() != v1.Cause_CAUSE_REFRESH &&
		timer.Due.GetCause() != v1.Cause_CAUSE_RECHECK
	switch {
	case errors.Is(err, pipeline.ErrNoMessage), err == nil && (due > handled || retries):
		return nil
	case err != nil:
		return err
	}
	// There are no further attempts, so it was fetched unless there is a new failure.
	filter := operate.DeadLetterFilter{Namespace: item.Key.Namespace, Name: item.Key.Name, Key: item.Key.Key}
	outcome := Fetched
	for failure, err := range f.client.DeadLetters(ctx, filter) {
		if err != nil {
			return err
		}
		if failure.ID > f.last {
			outcome, item.Again = FailedAgain, &failure
		}
		break
	}
	item.Verdict = outcome
	return nil
}

// Written waits until the writer has handled all results so far. It returns false if ctx ends before.
func (f *Follower) Written(ctx context.Context) (written bool, err error) {
	last := uint64(0)
	err = repeat(ctx, func() (bool, error) {
		err := Retry(ctx, func(ctx context.Context) error {
			stream, err := f.client.JetStream().Stream(ctx, pipeline.Results)
			if err != nil {
				return err
			}
			if last == 0 {
				last = stream.CachedInfo().State.LastSeq
			}
			info, err := operate.Consumer(ctx, stream, pipeline.WriterConsumer)
			if err == nil {
				written = info.NumPending == 0 && info.NumAckPending == 0 || info.AckFloor.Stream >= last
			}
			return err
		})
		return written, err
	})
	if ctx.Err() != nil { // the user ended it
		err = nil
	}
	return written, err
}
