package main

import (
	"context"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/fanout"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/isolation"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/overdue"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/parking"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/peers"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/refresh"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/remembered"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/tools"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/watchers"
)

// mode measures one thing. Beside an error it returns what was measured before, or
// nil.
type mode func(ctx context.Context, c bench.Config, progress bench.Progress) (figures, error)

// whole leaves figures out that are not complete.
func whole[F figures](f F, err error) (figures, error) {
	if err != nil {
		return nil, err
	}
	return f, nil
}

// chosen are the modes that the flags name, and else the comparison with the bare
// API server.
func chosen(c bench.Config) (modes []mode) {
	compare := func(ctx context.Context, c bench.Config, p bench.Progress) (figures, error) {
		return whole(bench.Run(ctx, c, p))
	}
	for _, m := range []struct {
		wanted bool
		mode   mode
	}{
		{c.Apart && !c.Prices, compare}, // with Prices it is where those are measured
		{c.Prices, func(ctx context.Context, c bench.Config, p bench.Progress) (figures, error) {
			return bench.MeasurePrices(ctx, c, p)
		}},
		{c.Scale != "", func(ctx context.Context, c bench.Config, p bench.Progress) (figures, error) {
			return bench.MeasureScale(ctx, c, p)
		}},
		{c.Isolation, func(ctx context.Context, c bench.Config, p bench.Progress) (figures, error) {
			return isolation.Run(ctx, isolation.Options{Bin: c.Bin, Part: c.Part()}, p)
		}},
		{c.Parking, func(ctx context.Context, c bench.Config, p bench.Progress) (figures, error) {
			return parking.Run(ctx, parking.Options{Bin: c.Bin, Part: c.Part()}, p)
		}},
		{c.Refresh > 0, func(ctx context.Context, c bench.Config, p bench.Progress) (figures, error) {
			return whole(refresh.Run(ctx, refresh.Options{Bin: c.Bin, Keys: c.Refresh, Rounds: c.Rounds, Profiles: c.Profiles}, p))
		}},
		{c.FanOut, func(ctx context.Context, c bench.Config, p bench.Progress) (figures, error) {
			return fanout.Run(ctx, fanout.Options{Bin: c.Bin, Part: c.Part()}, p)
		}},
		{c.Tools > 0, func(ctx context.Context, c bench.Config, p bench.Progress) (figures, error) {
			return tools.Run(ctx, tools.Options{Bin: c.Bin, Keys: c.Tools}, p)
		}},
		{c.Peers > 0, func(ctx context.Context, c bench.Config, p bench.Progress) (figures, error) {
			return peers.Run(ctx, peers.Options{Bin: c.Bin, ConfigMaps: c.Peers}, p)
		}},
		{c.Watchers > 0, func(ctx context.Context, c bench.Config, p bench.Progress) (figures, error) {
			return whole(watchers.Run(ctx, watchers.Options{Bin: c.Bin, Watchers: c.Watchers}, p))
		}},
		{c.Beside > 0, func(ctx context.Context, c bench.Config, p bench.Progress) (figures, error) {
			return whole(bench.MeasureBeside(ctx, c, p))
		}},
		{c.Remembered > 0, func(ctx context.Context, c bench.Config, p bench.Progress) (figures, error) {
			return whole(remembered.Run(ctx, remembered.Options{Bin: c.Bin, Objects: c.Remembered}, p))
		}},
		{c.Overdue > 0, func(ctx context.Context, c bench.Config, p bench.Progress) (figures, error) {
			return whole(overdue.Run(ctx, c.Overdue, p))
		}},
	} {
		if m.wanted {
			modes = append(modes, m.mode)
		}
	}
	if len(modes) > 0 {
		return modes
	}
	return []mode{compare}
}
