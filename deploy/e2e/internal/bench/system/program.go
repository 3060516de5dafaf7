package system

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/process"
)

const (
	// readyTimeout bounds the start of one program, stopTimeout its end.
	readyTimeout = 30 * time.Second
	stopTimeout  = 30 * time.Second

	probeInterval = 20 * time.Millisecond
)

// program is a process with a URL of its health.
type program struct {
	*process.Process
	health string
	// profiles is the URL below which its profiles are.
	profiles string
	// unscrape ends the reading of metrics, if there is any.
	unscrape func()
}

// launch starts a program. It inherits the environment, so that the services
// can be tuned by the twins of their flags.
func launch(name, path, health string, args ...string) (*program, error) {
	p, err := process.Start(process.Program{Name: name, Path: path, Args: args, Env: os.Environ()})
	if err != nil {
		return nil, err
	}
	return &program{Process: p, health: health}, nil
}

// again starts the program once it has ended, as it was, and waits until it is
// ready.
func (p *program) again(ctx context.Context) error {
	if err := p.Again(); err != nil {
		return err
	}
	if err := p.ready(ctx); err != nil {
		return errors.Join(err, p.end(ctx))
	}
	return nil
}

// err is about the end of the program; nil while it runs.
func (p *program) err() error {
	if p.Running() {
		return nil
	}
	return fmt.Errorf("%s has ended; its last line: %s", p.Name, p.Log.Last())
}

// ready waits until the program is ready. The error has its last answer.
func (p *program) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	ticker := time.NewTicker(probeInterval)
	defer ticker.Stop()
	for last := error(nil); ; {
		err := process.Ready(ctx, p.health)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil {
			last = err
		}
		if err := p.err(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w; its last answer: %w", p.Name, context.Cause(ctx), last)
		case <-ticker.C:
		}
	}
}

// end stops the program, if it runs; one that ends in another way than it should
// is an error. It takes its time even when ctx is done.
func (p *program) end(ctx context.Context) error {
	if p.unscrape != nil {
		p.unscrape()
	}
	if !p.Running() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	code, err := p.Stop(ctx)
	if err == nil && code > 0 {
		err = fmt.Errorf("exit code %d; last line: %s", code, p.Log.Last())
	}
	if err != nil {
		return fmt.Errorf("stop %s: %w", p.Name, err)
	}
	return nil
}
