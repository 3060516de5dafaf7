package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kv8s/curl-me-that/deploy/local/launch"
)

// program describes a process to start.
type program struct {
	name string
	path string
	args []string
	dir  string
	log  string
}

// process is a program that was started.
type process struct {
	program
	*launch.Process
	cmd *exec.Cmd
	// logStart is where the output of this process begins in its log.
	logStart int64
	// asked is true when the process is meant to end.
	asked atomic.Bool
}

// start runs the program with its output appended to its log.
func (p program) start() (*process, error) {
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open log of %s: %w", p.name, err)
	}
	defer log.Close()
	end, err := log.Seek(0, 2)
	if err != nil {
		return nil, fmt.Errorf("find end of the log of %s: %w", p.name, err)
	}
	cmd := exec.Command(p.path, p.args...)
	cmd.Dir = p.dir
	// An empty environment: ETCD_… variables and proxies of the shell are not for us.
	cmd.Env = []string{}
	cmd.Stdout, cmd.Stderr = log, log
	started, err := launch.Start(cmd)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", p.name, err)
	}
	return &process{program: p, Process: started, cmd: cmd, logStart: end}, nil
}

// failure describes a process that has ended, with the last line of its log.
func (p *process) failure() error {
	status := "status 0"
	if err := p.Err(); err != nil {
		status = err.Error()
	}
	return fmt.Errorf("%s %w (%s): %s", p.name, ErrExited, status, lastLine(p.log, p.logStart))
}

// stop asks the process to end and waits until it has. It kills when ctx ends first.
func (p *process) stop(ctx context.Context) error {
	p.asked.Store(true)
	// An error means that the process has ended already.
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.Exited():
		return nil
	case <-ctx.Done():
		p.kill()
		return fmt.Errorf("stop %s: killed because it was still running: %w", p.name, context.Cause(ctx))
	}
}

// kill ends the process at once and waits until it is gone.
func (p *process) kill() {
	p.asked.Store(true)
	_ = p.cmd.Process.Kill()
	<-p.Exited()
}

// startTimeout bounds the start of a process, which takes 3 s on an idle machine.
const startTimeout = 2 * time.Minute

// await calls ready until it returns nil. It gives up when the process or ctx ends, or
// after startTimeout.
func (p *process) await(ctx context.Context, interval time.Duration, ready func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, interval, startTimeout, true, func(ctx context.Context) (bool, error) {
		select {
		case <-p.Exited():
			return false, p.failure()
		default:
		}
		last = ready(ctx)
		return last == nil, nil
	})
	if errors.Is(ctx.Err(), context.Canceled) {
		return fmt.Errorf("wait for %s: %w", p.name, context.Cause(ctx))
	}
	if wait.Interrupted(err) {
		return fmt.Errorf("%s not ready: %w (%w), last line of its log: %s", p.name, last, err, lastLine(p.log, p.logStart))
	}
	return err
}

const (
	logWindow  = 8 << 10 // bytes at the end of a log
	lineLength = 400     // bytes of a line in an error message
)

// lastLine returns the last line of a log from an offset on, or why it cannot be read.
func lastLine(path string, start int64) string {
	file, err := os.Open(path)
	if err != nil {
		return err.Error()
	}
	defer file.Close()
	if info, err := file.Stat(); err == nil {
		start = max(start, info.Size()-logWindow)
	}
	text, err := io.ReadAll(io.NewSectionReader(file, start, logWindow))
	if err != nil {
		return err.Error()
	}
	last := strings.TrimSpace(string(text))
	last = last[strings.LastIndexByte(last, '\n')+1:]
	if last == "" {
		return "it logged nothing"
	}
	if len(last) > lineLength {
		last = strings.ToValidUTF8(last[:lineLength], "") + "…"
	}
	return last
}
