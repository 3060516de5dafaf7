package console

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kv8s/curl-me-that/deploy/curlctl/broker"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/keys"
)

const (
	// readEvery is the minimum interval between readings. A long reading is followed by a pause of readPause times
	// its duration, so that reading takes at most a tenth of the time.
	readEvery = time.Second
	readPause = 9
	// objectsEvery is the minimum interval between readings of Kubernetes.
	objectsEvery = 10 * time.Second
)

// cache has the last reading, which all pages share. It reads only for a page.
type cache struct {
	deps Deps

	mu   sync.Mutex
	last reading
	// next is the earliest time of another reading.
	next time.Time
	err  error
	// objects has the ConfigMaps of the last successful read of Kubernetes (nil: the console does not read it).
	objects     keys.Objects
	nextObjects time.Time
}

// reading is the state of the pipeline at a time.
type reading struct {
	keys.Overview

	// AsOf is zero if nothing was read.
	AsOf time.Time
}

// Last returns the last reading.
func (c *cache) Last() reading {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}

// Look returns the last reading, and reads again first if that is due. If this fails, it returns the earlier reading,
// if there is one, with the error.
func (c *cache) Look(ctx context.Context) (reading, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch connected := c.deps.Conn.Conn.IsConnected(); {
	case connected && c.deps.Now().After(c.next):
		c.readAll(context.WithoutCancel(ctx)) // other pages wait for it, too
	case !connected && c.last.AsOf.IsZero():
		return c.last, errors.New("no connection")
	}
	return c.last, c.err
}

// readAll reads the streams and the objects. On a temporary error it keeps the previous reading.
func (c *cache) readAll(ctx context.Context) {
	began, now := time.Now(), c.deps.Now()
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	ctx, end := c.deps.Conn.Denials.CancelOnDenied(ctx, broker.ToList)
	defer end()
	if c.deps.Kubernetes != nil && began.After(c.nextObjects) {
		if read, err := keys.ReadObjects(ctx, c.deps.Kubernetes, "", ""); err == nil {
			c.objects = read // without any reading, ok keys are NotRead
		}
		c.nextObjects = time.Now().Add(max(objectsEvery, readPause*time.Since(began)))
	}
	var overview keys.Overview
	overview, c.err = keys.ReadOverview(ctx, c.deps.Conn.Where, c.deps.Conn.Client.Counting(), c.objects, now)
	denied := new(broker.PermissionError)
	if c.err != nil && errors.As(context.Cause(ctx), &denied) {
		c.err = denied
	}
	switch {
	case c.err == nil:
		c.last = reading{overview, now}
	case errors.As(c.err, &denied), errors.Is(c.err, jetstream.ErrStreamNotFound):
		c.last = reading{}
	}
	c.next = now.Add(max(readEvery, (1+readPause)*time.Since(began)))
}
