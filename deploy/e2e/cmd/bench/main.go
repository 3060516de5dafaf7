// Command bench measures the assembled system against the cluster of
// $KUBECONFIG, and compares it with what the API server can do at best.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench"
)

func main() {
	os.Exit(run())
}

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var config bench.Config
	config.BindFlags(flag.CommandLine)
	file := flag.String("json", "", "file for the figures, an array with those of each mode; empty: behind the tables")
	flag.Parse()
	if err := measure(ctx, config, *file); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		return 1
	}
	return 0
}

func measure(ctx context.Context, config bench.Config, file string) (err error) {
	if flag.NArg() > 0 {
		return fmt.Errorf("%q is no flag", flag.Arg(0))
	}
	if err := config.Validate(); err != nil {
		return err
	}
	config.Shorten()
	out := os.Stdout
	if file != "" {
		if out, err = os.OpenFile(file, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600); err != nil {
			return fmt.Errorf("-json: %w", err)
		}
		defer func() { err = errors.Join(err, out.Close()) }()
	}
	began := time.Now()
	progress := func(format string, arguments ...any) {
		fmt.Fprintf(os.Stderr, "%6.1fs  %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, arguments...))
	}
	ctx, cancel := context.WithTimeoutCause(ctx, config.Timeout, fmt.Errorf("it takes longer than -timeout %s", config.Timeout))
	defer cancel()
	var documents []document
	defer func() { err = errors.Join(err, write(documents, out)) }()
	for _, m := range chosen(config) {
		f, err := m.measure(ctx, config, progress)
		if f != nil {
			documents = append(documents, document{m.name, f})
			err = errors.Join(err, f.WriteTable(os.Stdout))
		}
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
	}
	return nil
}

// document is what one mode has measured; a run writes an array of them.
type document struct {
	Mode    string  `json:"mode"`
	Figures figures `json:"figures"`
}

// figures are what a mode has measured; their JSON has the same, with the units in
// its names.
type figures interface {
	WriteTable(w io.Writer) error
}

func write(documents []document, out io.Writer) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(documents); err != nil {
		return fmt.Errorf("write the figures: %w", err)
	}
	return nil
}
