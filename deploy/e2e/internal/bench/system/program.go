package system

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/process"
)

const (
	// readyTimeout bounds the start of one program, stopTimeout its end.
	readyTimeout = 30 * time.Second
	stopTimeout  = 30 * time.Second

	probeInterval = 20 * time.Millisecond
	// maxAnswer is how much of an answer is read, in bytes.
	maxAnswer = 4 << 10
)

// program is a process with an address that tells whether it is ready.
type program struct {
	*process.Process
	health string
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

// err says that the program has ended; nil while it runs.
func (p *program) err() error {
	if p.Running() {
		return nil
	}
	return fmt.Errorf("%s has ended; %s", p.Name, p.lastWords())
}

func (p *program) lastWords() string {
	lines := p.Log.Lines()
	if len(lines) == 0 {
		return "it has said nothing"
	}
	return "its last words: " + lines[len(lines)-1]
}

// ready waits until the program says that it is ready. The error tells what it
// said instead.
func (p *program) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	ticker := time.NewTicker(probeInterval)
	defer ticker.Stop()
	for last := ""; ; {
		ok, answer := probe(ctx, p.health)
		if ok {
			return nil
		}
		if ctx.Err() == nil {
			last = answer
		}
		if err := p.err(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w; its last answer: %s", p.Name, context.Cause(ctx), last)
		case <-ticker.C:
		}
	}
}

func probe(ctx context.Context, url string) (ok bool, answer string) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return false, err.Error()
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false, err.Error()
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return false, err.Error()
	}
	return response.StatusCode == http.StatusOK, string(text)
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
		err = errors.New(p.lastWords())
	}
	if err != nil {
		return fmt.Errorf("stop %s: %w", p.Name, err)
	}
	return nil
}
