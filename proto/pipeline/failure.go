package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
)

// errInexact tells that more would be selected than was asked for.
var errInexact = errors.New("the server cannot select by time or address")

// FailureFilter selects dead letters; empty fields select all.
type FailureFilter struct {
	// Reason is the name of a failure class, as in Events.
	Reason string
	// Host of the URL as HostOf returns it, or an address, for which Failures
	// looks into the URLs.
	Host string
	// Namespace, Name and Key of the ConfigMap.
	Namespace, Name, Key string
	// Since and Until bound when the entry was kept: from Since on, before
	// Until.
	Since, Until time.Time
}

// Subject returns the subject filter for all but the times, which the server
// applies.
func (f FailureFilter) Subject() string {
	host := hostName(f.Host)
	if f.address() {
		host = "" // older entries have the address itself in their subjects
	}
	return deadPrefix + strings.Join([]string{
		anyOr(f.Reason), anyOr(host), anyOr(f.Namespace), anyOr(f.Name), anyOr(f.Key),
	}, ".")
}

// Exact tells whether Subject selects what the filter does, so that the server
// can count and purge by itself: it knows no times, and no addresses.
func (f FailureFilter) Exact() bool { return f.Since.IsZero() && f.Until.IsZero() && !f.address() }

// address tells whether Host is one.
func (f FailureFilter) address() bool {
	_, isAddress := address(f.Host)
	return isAddress
}

// elsewhere reports whether the filter asks for an address that a failure is
// not of.
func (f FailureFilter) elsewhere(letter *v1.DeadLetter) bool {
	return f.address() && !HostIs(letter.GetWant().GetUrl(), f.Host)
}

// anyOr returns the token of a value, or the wildcard when there is none.
func anyOr(value string) string {
	if value == "" {
		return "*"
	}
	return token(value)
}

// StoredFailure is a dead letter and where the stream keeps it.
type StoredFailure struct {
	// ID is the sequence in Failures.
	ID uint64
	// At is when the entry was kept.
	At time.Time
	// Reason and Host are those of the subject.
	Reason, Host string
	// Key that failed.
	Key Key
	// Letter is the entry; never nil.
	Letter *v1.DeadLetter
}

// Bounds of the windows in which Failures reads, in sequences, and the numbers
// of messages between which one is of good size.
const (
	windowFirst = 64
	windowMax   = 1 << 16
	windowFew   = 128
	windowMany  = 512
)

// Failures reads dead letters, the newest first. It holds a few hundred in
// memory at a time, however many there are. An error that is Unreadable does not
// end it.
func (c *Client) Failures(ctx context.Context, f FailureFilter) iter.Seq2[StoredFailure, error] {
	return func(yield func(StoredFailure, error) bool) {
		stream, err := c.js.Stream(ctx, Failures)
		if err != nil {
			yield(StoredFailure{}, fmt.Errorf("look up stream %s: %w", Failures, err))
			return
		}
		state := stream.CachedInfo().State
		span := uint64(windowFirst)
		for top := state.LastSeq + 1; top > max(state.FirstSeq, 1); {
			bottom := max(state.FirstSeq, 1)
			if top-bottom > span {
				bottom = top - span
			}
			window, err := c.window(ctx, Range{Stream: Failures, Subject: f.Subject(), From: bottom, Below: top})
			if err != nil {
				yield(StoredFailure{}, err)
				return
			}
			if !f.hand(window, yield) {
				return
			}
			switch {
			case len(window) > windowMany:
				span = max(span/4, windowFirst)
			case len(window) < windowFew:
				span = min(span*4, windowMax)
			}
			top = bottom
		}
	}
}

func (c *Client) window(ctx context.Context, r Range) ([]Message, error) {
	var window []Message
	for m, err := range c.Scan(ctx, r) {
		if err != nil {
			return nil, err
		}
		window = append(window, m)
	}
	return window, nil
}

// hand passes a window on from its end, and tells whether to go on.
func (f FailureFilter) hand(window []Message, yield func(StoredFailure, error) bool) bool {
	for _, m := range slices.Backward(window) {
		if !f.Since.IsZero() && m.Time.Before(f.Since) {
			return false
		}
		if !f.Until.IsZero() && !m.Time.Before(f.Until) {
			continue
		}
		failure, err := storedFailure(m)
		if err == nil && f.elsewhere(failure.Letter) {
			continue
		}
		if !yield(failure, err) || err != nil && !Unreadable(err) {
			return false
		}
	}
	return true
}

// Failure reads the dead letter with an id. The error wraps ErrNoMessage when
// there is none any more, and ErrSubject when the id is not one of a failure.
func (c *Client) Failure(ctx context.Context, id uint64) (StoredFailure, error) {
	request, err := json.Marshal(map[string]any{"seq": id})
	if err != nil {
		return StoredFailure{}, err
	}
	m, err := c.get(ctx, c.directGet()+Failures, request)
	if err != nil {
		return StoredFailure{}, fmt.Errorf("read failure %d: %w", id, err)
	}
	return storedFailure(m)
}

// storedFailure decodes an entry. One whose payload cannot be read still tells
// what its subject does.
func storedFailure(m Message) (StoredFailure, error) {
	reason, host, key, err := ParseDeadLetter(m.Subject)
	if err != nil {
		return StoredFailure{}, fmt.Errorf("read failure %d: %w", m.Sequence, err)
	}
	letter := new(v1.DeadLetter)
	if err := proto.Unmarshal(m.Data, letter); err != nil {
		letter = &v1.DeadLetter{Payload: m.Data, Subject: m.Subject}
	}
	return StoredFailure{ID: m.Sequence, At: m.Time, Reason: reason, Host: host, Key: key, Letter: letter}, nil
}

// CountFailures returns how many dead letters each reason and host has, without
// reading them; those of a subject that is not one of the pipeline have neither.
// The filter must be Exact.
func (c *Client) CountFailures(ctx context.Context, f FailureFilter) (map[ReasonHost]uint64, error) {
	if !f.Exact() {
		return nil, fmt.Errorf("count failures: %w", errInexact)
	}
	stream, err := c.js.Stream(ctx, Failures)
	if err != nil {
		return nil, fmt.Errorf("look up stream %s: %w", Failures, err)
	}
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter(f.Subject()))
	if err != nil {
		return nil, fmt.Errorf("count failures: %w", err)
	}
	counts := map[ReasonHost]uint64{}
	for subject, n := range info.State.Subjects {
		reason, host, _, err := ParseDeadLetter(subject)
		if err != nil {
			reason, host = "", ""
		}
		counts[ReasonHost{Reason: reason, Host: host}] += n
	}
	return counts, nil
}

// ReasonHost is what failures are counted by.
type ReasonHost struct {
	// Reason is the name of a failure class, as in Events.
	Reason string
	// Host of the URL, without port.
	Host string
}

// DeleteFailure removes the entry with an id; one that is gone is no error.
func (c *Client) DeleteFailure(ctx context.Context, id uint64) error {
	stream, err := c.js.Stream(ctx, Failures)
	if err != nil {
		return fmt.Errorf("look up stream %s: %w", Failures, err)
	}
	if err := stream.DeleteMsg(ctx, id); err != nil {
		if _, gone := c.Failure(ctx, id); errors.Is(gone, ErrNoMessage) {
			return nil
		}
		return fmt.Errorf("delete failure %d: %w", id, err)
	}
	return nil
}

// PurgeFailures removes all entries that a filter selects, which must be Exact,
// and returns how many.
func (c *Client) PurgeFailures(ctx context.Context, f FailureFilter) (uint64, error) {
	if !f.Exact() {
		return 0, fmt.Errorf("purge failures: %w", errInexact)
	}
	stream, err := c.js.Stream(ctx, Failures)
	if err != nil {
		return 0, fmt.Errorf("look up stream %s: %w", Failures, err)
	}
	counts, err := c.CountFailures(ctx, f)
	if err != nil {
		return 0, err
	}
	if err := stream.Purge(ctx, jetstream.WithPurgeSubject(f.Subject())); err != nil {
		return 0, fmt.Errorf("purge failures: %w", err)
	}
	n := uint64(0)
	for _, count := range counts {
		n += count
	}
	return n, nil
}
