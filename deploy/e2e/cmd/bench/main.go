// Command bench measures the assembled system against the cluster of
// $KUBECONFIG, and compares it with what the API server can do at best.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/isolation"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/overdue"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/parking"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/refresh"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/remembered"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/tools"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/watchers"
)

func main() {
	os.Exit(run())
}

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var config bench.Config
	config.BindFlags(flag.CommandLine)
	file := flag.String("json", "", "file for the figures; empty: behind the table")
	flag.Parse()
	if err := measure(ctx, config, *file); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		return 1
	}
	return 0
}

func measure(ctx context.Context, config bench.Config, file string) error {
	if flag.NArg() > 0 {
		return fmt.Errorf("%q is no flag", flag.Arg(0))
	}
	if err := config.Validate(); err != nil {
		return err
	}
	config.Shorten()
	began := time.Now()
	progress := func(format string, arguments ...any) {
		fmt.Fprintf(os.Stderr, "%6.1fs  %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, arguments...))
	}
	switch {
	case config.Prices:
		prices, err := bench.MeasurePrices(ctx, config, progress)
		return errors.Join(err, prices.WriteTable(os.Stdout))
	case config.Isolation:
		return isolate(ctx, config, progress)
	case config.Parking:
		return park(ctx, config, progress)
	case config.Refresh > 0:
		return refreshes(ctx, config, progress)
	case config.Watchers > 0:
		report, err := watchers.Run(ctx, watchers.Options{Bin: config.Bin, Watchers: config.Watchers}, progress)
		if err != nil {
			return err
		}
		return report.WriteTable(os.Stdout)
	case config.Remembered > 0:
		return remember(ctx, config, progress)
	case config.Tools > 0:
		return list(ctx, config, progress)
	case config.Overdue > 0:
		report, err := overdue.Run(ctx, config.Overdue, progress)
		if err != nil {
			return err
		}
		return report.WriteTable(os.Stdout)
	}
	report, err := bench.Run(ctx, config, progress)
	if report == nil {
		return err
	}
	return errors.Join(err, report.WriteTable(os.Stdout), writeFigures(report, file))
}

// isolate prints a table of hostile tenants, of as many as were measured.
func isolate(ctx context.Context, config bench.Config, progress bench.Progress) error {
	ctx, cancel := within(ctx, config)
	defer cancel()
	rows, err := isolation.Run(ctx, isolation.Options{Bin: config.Bin, Part: config.Part()}, progress)
	return errors.Join(err, isolation.WriteTable(os.Stdout, rows))
}

// refreshes prints what a refresh costs.
func refreshes(ctx context.Context, config bench.Config, progress bench.Progress) error {
	ctx, cancel := within(ctx, config)
	defer cancel()
	report, err := refresh.Run(ctx, refresh.Options{Bin: config.Bin, Keys: config.Refresh, Profiles: config.Profiles}, progress)
	if err != nil {
		return err
	}
	return report.WriteTable(os.Stdout)
}

// remember prints what a writer uses that has written to many objects.
func remember(ctx context.Context, config bench.Config, progress bench.Progress) error {
	ctx, cancel := within(ctx, config)
	defer cancel()
	report, err := remembered.Run(ctx, remembered.Options{Bin: config.Bin, Objects: config.Remembered}, progress)
	if err != nil {
		return err
	}
	return report.WriteTable(os.Stdout)
}

// list prints how long curlctl takes for its lists, as many as were measured.
func list(ctx context.Context, config bench.Config, progress bench.Progress) error {
	ctx, cancel := within(ctx, config)
	defer cancel()
	rows, err := tools.Run(ctx, tools.Options{Bin: config.Bin, Keys: config.Tools}, progress)
	return errors.Join(err, tools.WriteTable(os.Stdout, rows))
}

// park prints a table of hosts, of as many as were measured.
func park(ctx context.Context, config bench.Config, progress bench.Progress) error {
	ctx, cancel := within(ctx, config)
	defer cancel()
	rows, err := parking.Run(ctx, parking.Options{Bin: config.Bin, Part: config.Part()}, progress)
	return errors.Join(err, parking.WriteTable(os.Stdout, rows))
}

func within(ctx context.Context, config bench.Config) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, config.Timeout, fmt.Errorf("it takes longer than -timeout %s", config.Timeout))
}

func writeFigures(report *bench.Report, file string) error {
	figures, err := json.MarshalIndent(report, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the figures: %w", err)
	}
	if file == "" {
		fmt.Printf("\n%s\n", figures)
		return nil
	}
	if err := os.WriteFile(file, append(figures, '\n'), 0o600); err != nil {
		return fmt.Errorf("-json: %w", err)
	}
	return nil
}
