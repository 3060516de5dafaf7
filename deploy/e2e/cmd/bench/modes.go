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

// mode measures one thing.
type mode struct {
	// name is that of its flag, and wanted: the flags ask for it.
	name   string
	wanted bool
	// measure returns what was measured before beside an error, or nil.
	measure func(ctx context.Context, c bench.Config, progress bench.Progress) (figures, error)
}

// whole leaves figures out that are not complete.
func whole[F figures](f F, err error) (figures, error) {
	if err != nil {
		return nil, err
	}
	return f, nil
}

// chosen are the modes that the flags name, and else the comparison with the bare
// API server.
func chosen(c bench.Config) (wanted []mode) {
	all := modes(c)
	for _, m := range all {
		if m.wanted {
			wanted = append(wanted, m)
		}
	}
	if len(wanted) == 0 {
		return all[:1]
	}
	return wanted
}

// modes are all that there are, the comparison with the bare API server first.
func modes(c bench.Config) []mode {
	return []mode{
		// With Prices, Apart is where those are measured.
		{"pipeline", c.Apart && !c.Prices, func(ctx context.Context, c bench.Config, p bench.Progress) (figures, error) {
			return whole(bench.Run(ctx, c, p))
		}},
		{"prices", c.Prices, func(ctx context.Context, c bench.Config, p bench.Progress) (figures, error) {
			return bench.MeasurePrices(ctx, c, p)
		}},
		{"scale", c.Scale != "", func(ctx context.Context, c bench.Config, p bench.Progress) (figures, error) {
			return bench.MeasureScale(ctx, c, p)
		}},
		{"isolation", c.Isolation, func(ctx context.Context, c bench.Config, p bench.Progress) (figures, error) {
			return isolation.Run(ctx, isolation.Options{Bin: c.Bin, Part: c.Part()}, p)
		}},
		{"parking", c.Parking, func(ctx context.Context, c bench.Config, p bench.Progress) (figures, error) {
			return parking.Run(ctx, parking.Options{Bin: c.Bin, Part: c.Part()}, p)
		}},
		{"refresh", c.Refresh > 0, func(ctx context.Context, c bench.Config, p bench.Progress) (figures, error) {
			return whole(refresh.Run(ctx, refresh.Options{Bin: c.Bin, Keys: c.Refresh, Replicas: c.Replicas, Rounds: c.Rounds, Profiles: c.Profiles}, p))
		}},
		{"fanout", c.FanOut, func(ctx context.Context, c bench.Config, p bench.Progress) (figures, error) {
			return fanout.Run(ctx, fanout.Options{Bin: c.Bin, Part: c.Part()}, p)
		}},
		{"tools", c.Tools > 0, func(ctx context.Context, c bench.Config, p bench.Progress) (figures, error) {
			return tools.Run(ctx, tools.Options{Bin: c.Bin, Keys: c.Tools}, p)
		}},
		{"peers", c.Peers > 0, func(ctx context.Context, c bench.Config, p bench.Progress) (figures, error) {
			return peers.Run(ctx, peers.Options{Bin: c.Bin, ConfigMaps: c.Peers}, p)
		}},
		{"watchers", c.Watchers > 0, func(ctx context.Context, c bench.Config, p bench.Progress) (figures, error) {
			return whole(watchers.Run(ctx, watchers.Options{Bin: c.Bin, Watchers: c.Watchers}, p))
		}},
		{"beside", c.Beside > 0, func(ctx context.Context, c bench.Config, p bench.Progress) (figures, error) {
			return whole(bench.MeasureBeside(ctx, c, p))
		}},
		{"remembered", c.Remembered > 0, func(ctx context.Context, c bench.Config, p bench.Progress) (figures, error) {
			return whole(remembered.Run(ctx, remembered.Options{Bin: c.Bin, Objects: c.Remembered}, p))
		}},
		{"overdue", c.Overdue > 0, func(ctx context.Context, c bench.Config, p bench.Progress) (figures, error) {
			return whole(overdue.Run(ctx, c.Overdue, p))
		}},
	}
}
