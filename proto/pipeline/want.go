package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
)

// KeyOf returns the key of a want.
func KeyOf(w *v1.Want) Key {
	return Key{Namespace: w.GetNamespace(), Name: w.GetName(), Key: w.GetKey()}
}

// SameRequest reports whether two wants make the same request, for any versions of the object.
func SameRequest(a, b *v1.Want) bool {
	return a.GetUid() == b.GetUid() && a.GetUrl() == b.GetUrl() && a.GetNow() == b.GetNow() &&
		a.GetSha256() == b.GetSha256() && a.GetFingerprint() == b.GetFingerprint() &&
		a.GetRefresh().AsDuration() == b.GetRefresh().AsDuration() &&
		slices.Equal(a.GetExpect(), b.GetExpect()) && a.GetSelect() == b.GetSelect()
}

// A tombstone is marked like a deleted key of a NATS KV store (ADR-8).
const (
	headerOperation = "KV-Operation"
	operationDelete = "DEL"
)

// PublishWant replaces the want of its key and cancels the key's timer, if the last message on the
// subject still has the sequence last (0 means that there is none).
//
// If it does not, PublishWant reads the subject. A message with the same request counts as ours,
// because the response to an earlier try may have been lost. Otherwise the error wraps
// ErrSuperseded, also if the expected message has expired, as tombstones do. It wraps ErrTooLarge
// if the want exceeds MaxRequestBytes.
func (c *Client) PublishWant(ctx context.Context, w *v1.Want, last uint64) (seq uint64, err error) {
	key := KeyOf(w)
	m, err := newMessage(ctx, key.WantSubject(), w)
	if err != nil {
		return 0, err
	}
	return c.replaceWant(ctx, m, key, last, func(have *v1.Want) bool {
		return have != nil && have.GetEpoch() == w.GetEpoch() && SameRequest(have, w) &&
			(have.GetCached() == nil || w.GetCached() != nil) // a want in sync triggers no fetch
	})
}

// PublishTombstone replaces the want of a key with a tombstone and cancels the key's timer, under the
// same condition as PublishWant.
func (c *Client) PublishTombstone(ctx context.Context, key Key, last uint64) (seq uint64, err error) {
	m, err := newMessage(ctx, key.WantSubject(), nil)
	if err != nil {
		return 0, err
	}
	m.Header.Set(headerOperation, operationDelete)
	m.Header.Set(jetstream.MsgTTLHeader, TombstoneTTL.String())
	return c.replaceWant(ctx, m, key, last, func(have *v1.Want) bool { return have == nil })
}

// replaceWant publishes m in place of the want of a key. A message that is there instead counts as m
// if it is ours.
func (c *Client) replaceWant(ctx context.Context, m *nats.Msg, key Key, last uint64, ours func(have *v1.Want) bool,
) (uint64, error) {
	alsoCancelTimer(m, key)
	return c.replace(ctx, "publish want of "+key.String(), m, last, func(have Message) bool {
		w, err := DecodeWant(key, have.Data)
		return err == nil && ours(w)
	})
}

// LastWant returns the last want of a key and its stream sequence. A tombstone is a nil want. The
// error wraps ErrNoMessage if there is none, and ErrMalformed if it cannot be decoded. The sequence
// is valid then.
//
// In a cluster the response may be slightly stale.
func (c *Client) LastWant(ctx context.Context, key Key) (*v1.Want, uint64, error) {
	m, err := c.LastMessage(ctx, Requests, key.WantSubject())
	if err != nil {
		return nil, 0, fmt.Errorf("read want of %s: %w", key, err)
	}
	w, err := DecodeWant(key, m.Data)
	return w, m.Sequence, err
}

// DecodeWant decodes the payload of a want. A tombstone is nil. The want must be for the key in its
// subject. Errors wrap ErrMalformed.
func DecodeWant(key Key, data []byte) (*v1.Want, error) {
	if len(data) == 0 {
		return nil, nil //nolint:nilnil // a tombstone is no error
	}
	return decode(key, data, new(v1.Want), func(w *v1.Want) *v1.Want { return w })
}

// LoadWants calls each with the last message of every want subject, tombstones included, in stream
// order.
//
// It uses direct gets, because an identity that may create a consumer can make the server publish
// to any subject of its account. If the server fails, LoadWants continues with another one.
func (c *Client) LoadWants(ctx context.Context, each func(Message) error) error {
	rest := Range{Stream: Requests, Subject: KindWant.All()}
	for {
		err := c.loadRest(ctx, &rest, each)
		if err == nil || ctx.Err() != nil || !errors.Is(err, errNoResponse) {
			return err
		}
	}
}

// loadRest reads from the start of rest, and advances it.
func (c *Client) loadRest(ctx context.Context, rest *Range, each func(Message) error) error {
	for m, err := range c.Scan(ctx, *rest) {
		if err != nil {
			return err
		}
		rest.From = m.Sequence + 1
		if err := each(m); err != nil {
			return err
		}
		if err := context.Cause(ctx); err != nil {
			return fmt.Errorf("read %s: %w", rest.Subject, err)
		}
	}
	return nil
}

// OldestWant returns when the oldest request for a fetch at or after a sequence was stored. The error
// wraps ErrNoMessage if there is none.
func (c *Client) OldestWant(ctx context.Context, from uint64) (at time.Time, err error) {
	none := true
	for _, kind := range []Kind{KindWant, KindDue} {
		m, err := c.request(ctx, Requests, map[string]any{"seq": from, "next_by_subj": kind.All()})
		switch {
		case errors.Is(err, ErrNoMessage):
		case err != nil:
			return time.Time{}, fmt.Errorf("read the oldest request: %w", err)
		case none || m.Time.Before(at):
			at, none = m.Time, false
		}
	}
	if none {
		return time.Time{}, fmt.Errorf("read the oldest request: %w", ErrNoMessage)
	}
	return at, nil
}
