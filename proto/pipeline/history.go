package pipeline

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
)

// VersionSubject is the subject of the versions of a key in History.
func (k Key) VersionSubject() string { return KindVersion.of(k) }

// BodySubject is the subject of a body in History. Equal bodies of a namespace have the same subject.
func BodySubject(namespace, digest string) string {
	return bodyPrefix + token(namespace) + "." + token(digest)
}

// ErrNoBody means that the history does not have a body, or one with another digest.
var ErrNoBody = errors.New("the history does not have that body")

// Archive adds versions to the history. No result waits for it: what the server does not confirm in time is missing.
type Archive struct {
	js     jetstream.JetStream
	report func(error)
	// unconfirmed has the bytes that the server has not confirmed yet.
	unconfirmed atomic.Int64
	// versions has the version of each body that is not confirmed yet. A version without its body is of no use.
	versions sync.Map
	// open counts the versions that are not reported yet, and ended gets a value when one is.
	open  atomic.Int64
	ended chan struct{}
}

const (
	// confirmTimeout is the maximum time until the server confirms a version.
	confirmTimeout = time.Minute
	// maxUnconfirmed is the maximum number of messages that wait for it, far below the number at which nats.go would
	// block, and maxUnconfirmedBytes that of their bytes.
	maxUnconfirmed, maxUnconfirmedBytes = 1000, 16 << 20
)

// errBusy means that the server confirms versions too slowly.
var errBusy = errors.New("too many versions wait for the confirmation of the server")

// Archive returns an archive that calls report once for each version, with nil once the server has it. report must not
// block.
func (c *Client) Archive(report func(error)) (*Archive, error) {
	a := &Archive{report: report, ended: make(chan struct{}, 1)}
	var err error
	a.js, err = jetstream.New(c.js.Conn(), jetstream.WithPublishAsyncTimeout(confirmTimeout),
		jetstream.WithPublishAsyncAckHandler(func(_ jetstream.JetStream, m *nats.Msg, _ *jetstream.PubAck) {
			a.done(m, nil)
		}),
		jetstream.WithPublishAsyncErrHandler(func(_ jetstream.JetStream, m *nats.Msg, err error) { a.done(m, err) }))
	return a, err
}

// Keep adds a version of a key to the history, and its body unless the namespace already has it. It does not wait.
// The server drops the same version of the same trigger within five minutes.
func (a *Archive) Keep(ctx context.Context, key Key, v *v1.Version, body []byte, trigger string) {
	a.open.Add(1)
	version, err := newMessage(ctx, key.VersionSubject(), v)
	if err != nil {
		a.end(err)
		return
	}
	version.Header.Set(jetstream.MsgIDHeader, key.VersionSubject()+" "+trigger)
	content := nats.NewMsg(BodySubject(key.Namespace, v.GetSha256()))
	content.Data = body
	a.versions.Store(content, version)
	a.publish(content, jetstream.WithExpectLastSequencePerSubject(0))
}

func (a *Archive) publish(m *nats.Msg, opts ...jetstream.PublishOpt) {
	err := errBusy
	if a.unconfirmed.Add(int64(len(m.Data))) <= maxUnconfirmedBytes && a.js.PublishAsyncPending() < maxUnconfirmed {
		_, err = a.js.PublishMsgAsync(m, append(opts, jetstream.WithExpectStream(History))...)
	}
	if err != nil {
		a.done(m, err)
	}
}

// done continues with the version after its body.
func (a *Archive) done(m *nats.Msg, err error) {
	a.unconfirmed.Add(-int64(len(m.Data)))
	version, isBody := a.versions.LoadAndDelete(m)
	there := isBody && hasCode(err, codeWrongLastSequence, codeWrongLastSequenceConstant)
	switch {
	case err != nil && !there:
		a.end(fmt.Errorf("keep %s: %w", m.Subject, wrapServerError(err)))
	case isBody:
		a.publish(version.(*nats.Msg)) //nolint:forcetypeassert // only Keep stores
	default:
		a.end(nil)
	}
}

func (a *Archive) end(err error) {
	a.report(err)
	a.open.Add(-1)
	select {
	case a.ended <- struct{}{}:
	default:
	}
}

// Wait waits until the server has all versions, or until the limit is over. A connection that is closed before may
// lose versions whose body it just sent.
func (a *Archive) Wait(limit time.Duration) {
	for over := time.After(limit); a.open.Load() > 0; {
		select {
		case <-a.ended:
		case <-over:
			return
		}
	}
}

// Body returns a body of a namespace from the history, after comparing its digest. The error wraps ErrNoBody if the
// history has no such body, or does not exist.
func (c *Client) Body(ctx context.Context, namespace, digest string) ([]byte, error) {
	m, err := c.LastMessage(ctx, History, BodySubject(namespace, digest))
	switch {
	case errors.Is(err, ErrNoMessage), errors.Is(err, jetstream.ErrStreamNotFound):
		return nil, ErrNoBody
	case err != nil:
		return nil, fmt.Errorf("read body %s of namespace %s: %w", digest, namespace, err)
	case Digest(m.Data) != digest:
		return nil, fmt.Errorf("%w: a body with another digest is in its place", ErrNoBody)
	}
	return m.Data, nil
}

// hasBody is like Body, but the server sends no content, so the digest is not compared.
func (c *Client) hasBody(ctx context.Context, namespace, digest string) error {
	subject, info := BodySubject(namespace, digest), new(jetstream.StreamInfo)
	stream, err := c.js.Stream(ctx, History)
	if err == nil {
		info, err = stream.Info(ctx, jetstream.WithSubjectFilter(subject))
	}
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound), err == nil && info.State.Subjects[subject] == 0:
		return ErrNoBody
	case err != nil:
		return fmt.Errorf("look up body %s of namespace %s: %w", digest, namespace, err)
	}
	return nil
}

// Bodies finds bodies in the history while it responds. After an error it rests for a minute, so that an outage delays
// few objects. It is safe for concurrent use.
type Bodies struct {
	client *Client
	report func(error)
	// pausedUntil is in Unix nanoseconds.
	pausedUntil atomic.Int64
}

// Bodies returns Bodies that call report with each error after which they rest.
func (c *Client) Bodies(report func(error)) *Bodies { return &Bodies{client: c, report: report} }

// Pause makes the bodies rest.
func (b *Bodies) Pause() { b.pausedUntil.Store(time.Now().Add(time.Minute).UnixNano()) }

// Paused reports whether no body is found until a minute is over.
func (b *Bodies) Paused() bool { return time.Now().UnixNano() < b.pausedUntil.Load() }

// Find returns a body like Client.Body, unless the bodies rest.
func (b *Bodies) Find(ctx context.Context, namespace, digest string) (body []byte, found bool) {
	found = b.try(ctx, func(ctx context.Context) (err error) {
		body, err = b.client.Body(ctx, namespace, digest)
		return err
	})
	return body, found
}

// Has reports whether Find would find a body, without reading it.
func (b *Bodies) Has(ctx context.Context, namespace, digest string) bool {
	return b.try(ctx, func(ctx context.Context) error { return b.client.hasBody(ctx, namespace, digest) })
}

// lookupTimeout is the maximum time to look for one body.
const lookupTimeout = time.Second

// try reports whether read finds a body, unless the bodies rest. If the caller's own time is over, that says nothing
// about the history: it may have looked for many bodies.
func (b *Bodies) try(ctx context.Context, read func(context.Context) error) (found bool) {
	if b.Paused() {
		return false
	}
	limited, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	err := read(limited)
	if err != nil && !errors.Is(err, ErrNoBody) && ctx.Err() == nil {
		b.Pause()
		b.report(err)
	}
	return err == nil
}

// Versions returns the versions of a key, newest first, at most HistoryVersions. A message that cannot be decoded is
// left out. Without a history there are none.
func (c *Client) Versions(ctx context.Context, key Key) (versions []*v1.Version, err error) {
	for from := uint64(1); ; {
		m, err := c.request(ctx, History, map[string]any{"seq": from, "next_by_subj": key.VersionSubject()})
		switch {
		case errors.Is(err, ErrNoMessage), errors.Is(err, jetstream.ErrStreamNotFound):
			slices.Reverse(versions)
			return versions[:min(len(versions), HistoryVersions)], nil // one may have been added meanwhile
		case err != nil:
			return nil, fmt.Errorf("read the versions of %s: %w", key, err)
		}
		if v := new(v1.Version); proto.Unmarshal(m.Data, v) == nil && len(v.GetSha256()) == 2*sha256.Size {
			versions = append(versions, v)
		}
		from = m.Sequence + 1
	}
}
