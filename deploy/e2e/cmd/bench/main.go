// Command bench measures the assembled system in the cluster of $KUBECONFIG.
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
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var options bench.Options
	options.BindFlags(flag.CommandLine)
	file := flag.String("json", "",
		"file for the figures, an array with one entry per mode (default: standard output)")
	flag.Parse()
	if err := measure(ctx, options, *file); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// document has the figures of one mode.
type document struct {
	Mode    string `json:"mode"`
	Figures any    `json:"figures"`
}

func measure(ctx context.Context, o bench.Options, file string) (err error) {
	if flag.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flag.Arg(0))
	}
	if err := o.Complete(); err != nil {
		return err
	}
	out := os.Stdout
	if file != "" {
		if out, err = os.OpenFile(file, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600); err != nil {
			return fmt.Errorf("-json: %w", err)
		}
		defer func() { err = errors.Join(err, out.Close()) }()
	}
	began := time.Now()
	o.Progress = func(format string, arguments ...any) {
		fmt.Fprintf(os.Stderr, "%6.1fs  %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, arguments...))
	}
	ctx, cancel := context.WithTimeoutCause(ctx, o.Timeout, fmt.Errorf("not done after -timeout=%s", o.Timeout))
	defer cancel()
	var documents []document
	for _, mode := range o.Modes() {
		figures, errMode := mode.Measure(ctx, o)
		if figures != nil {
			documents = append(documents, document{mode.Name, figures})
		}
		if errMode != nil {
			err = fmt.Errorf("%s: %w", mode.Name, errMode)
			break
		}
	}
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return errors.Join(err, encoder.Encode(documents))
}
