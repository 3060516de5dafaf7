// Package process runs the programs under test. It starts, stops and kills them, keeps their logs, finds ports
// for them and checks their health.
package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/kv8s/curl-me-that/deploy/local/launch"
)

// Program describes a process to start.
type Program struct {
	// Name of the process in messages.
	Name string
	// Path of the executable file.
	Path string
	// Args of the program.
	Args []string
	// Health is a URL that responds with 200 when the process is ready.
	Health string
	// Env is the whole environment. Nothing is inherited, so the shell cannot influence a test.
	Env []string
}

// Process is a program that was started, perhaps several times.
type Process struct {
	*launch.Process
	// Args of the program.
	Args []string
	// Log has the output of all runs.
	Log *Log

	health string
}

// Start runs a program.
func Start(p Program) (*Process, error) {
	log := &Log{}
	cmd := exec.Command(p.Path, p.Args...)
	cmd.Env = append([]string{}, p.Env...)
	cmd.Stdout, cmd.Stderr = log, log
	started, err := launch.Start(p.Name, cmd)
	return &Process{Process: started, Args: p.Args, Log: log, health: p.Health}, err
}

// Ended returns nil while the process runs, and then an error with its last line.
func (p *Process) Ended() error {
	if p.Running() {
		return nil
	}
	return fmt.Errorf("%s has ended, its last line: %s", p.Name, p.Log.Last())
}

// Ready returns nil if the process is ready, or an error with its response.
func (p *Process) Ready(ctx context.Context) error {
	if err := p.Ended(); err != nil {
		return err
	}
	body, code, err := Get(ctx, p.health)
	if err == nil && code != http.StatusOK {
		err = fmt.Errorf("not ready: %s", strings.TrimSpace(body))
	}
	return err
}

// Log keeps the output of a process. It is safe for concurrent use.
type Log struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write appends output.
func (l *Log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// String returns all output.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Count returns the number of lines.
func (l *Log) Count() int { return strings.Count(l.String(), "\n") }

// Lines returns all lines, including an unfinished one.
func (l *Log) Lines() (lines []string) {
	for line := range strings.Lines(l.String()) {
		lines = append(lines, strings.TrimSuffix(line, "\n"))
	}
	return lines
}

// Last returns the last line.
func (l *Log) Last() string {
	lines := l.Lines()
	if len(lines) == 0 {
		return "(empty log)"
	}
	return lines[len(lines)-1]
}

// Matching returns the lines that contain text.
func (l *Log) Matching(text string) []string {
	return slices.DeleteFunc(l.Lines(), func(line string) bool { return !strings.Contains(line, text) })
}

const (
	// getTimeout is the time limit of a request, and maxAnswer the maximum size of its response in bytes.
	getTimeout = 15 * time.Second
	maxAnswer  = 16 << 20
)

// Get returns the body and the status code of the response to a GET.
func Get(ctx context.Context, url string) (body string, code int, err error) {
	ctx, cancel := context.WithTimeout(ctx, getTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", 0, fmt.Errorf("get %s: %w", url, err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", 0, fmt.Errorf("send a request: %w", err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return "", 0, fmt.Errorf("get %s: %w", url, err)
	}
	return string(text), response.StatusCode, nil
}

// Samples returns the samples of all series at a metrics URL. Series of histograms keep their suffixes.
func Samples(ctx context.Context, url string) (model.Vector, error) {
	body, code, err := Get(ctx, url)
	if err == nil && code != http.StatusOK {
		err = fmt.Errorf("read the metrics of %s: status %d", url, code)
	}
	if err != nil {
		return nil, err
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("read the metrics of %s: %w", url, err)
	}
	return expfmt.ExtractSamples(&expfmt.DecodeOptions{}, slices.Collect(maps.Values(families))...)
}

// AllowLoopback is the flag that lets a fetcher reach origins on this machine.
const AllowLoopback = "--allow-cidr=127.0.0.0/8,::1/128"

// Ports are below the range of outgoing connections, which might take the port of a stopped service.
const (
	firstPort = 20000
	lastPort  = 32000
	// blockPorts is the number of ports reserved for a process.
	blockPorts = 200
	portTries  = 100
)

// Ports hands out free ports. It reuses a port as late as possible, so that programs that start at the same
// time get different ones. At its first use it claims a block of ports for the life of this process. It is safe
// for concurrent use.
type Ports struct {
	mu sync.Mutex
	// block listens at the first port of the block, which reserves the block.
	block net.Listener
	first int
	next  int
}

// Free returns an unused loopback address.
func (p *Ports) Free() (address string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.claim(); err != nil {
		return "", err
	}
	for range portTries {
		p.next = p.next%(blockPorts-1) + 1
		address = loopback(p.first + p.next)
		listener, err := net.Listen("tcp", address)
		if err != nil {
			continue
		}
		if err := listener.Close(); err != nil {
			return "", fmt.Errorf("free the port of %s: %w", address, err)
		}
		return address, nil
	}
	return "", errors.New("no free port on 127.0.0.1")
}

// claim claims a random block of ports, and starts at a random port. The caller holds the lock.
func (p *Ports) claim() (err error) {
	if p.block != nil {
		return nil
	}
	for _, n := range rand.Perm((lastPort - firstPort) / blockPorts) {
		first := firstPort + n*blockPorts
		if p.block, err = net.Listen("tcp", loopback(first)); err == nil {
			p.first, p.next = first, rand.IntN(blockPorts)
			return nil
		}
	}
	return fmt.Errorf("no block of ports is free: %w", err)
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
