package pipeline

import (
	"context"
	"errors"
	"fmt"
	"strconv"
)

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

// CountTimers returns the number of pending timers.
func (c *Client) CountTimers(ctx context.Context) (uint64, error) {
	m, err := c.request(ctx, Requests, map[string]any{"seq": 1, "next_by_subj": KindTimer.All(), "batch": 1})
	if errors.Is(err, ErrNoMessage) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("count timers: %w", err)
	}
	behind, err := strconv.ParseUint(m.Header.Get("Nats-Num-Pending"), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("count timers: number after the first: %w", err)
	}
	return 1 + behind, nil
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
