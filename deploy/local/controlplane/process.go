package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/kv8s/curl-me-that/deploy/local/launch"
)

// process is etcd or kube-apiserver.
type process struct {
	*launch.Process
	log string
}

// start runs a program in the folder, with its own log.
func (d dataDir) start(path, name string, args ...string) (*process, error) {
	p := &process{log: d.path("logs", name+".log")}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open log of %s: %w", name, err)
	}
	defer log.Close()
	cmd := exec.Command(path, args...)
	cmd.Dir = d.Dir
	// Variables of the shell, such as ETCD_… and proxies, must not affect the program.
	cmd.Env = []string{}
	cmd.Stdout, cmd.Stderr = log, log
	p.Process, err = launch.Start(name, cmd)
	return p, err
}

// failure describes a process that has ended, with the last line of its log.
func (p *process) failure() error {
	return fmt.Errorf("%s %w (%s): %s", p.Name, ErrExited, p.State(), p.lastLine())
}

// startTimeout limits the start of a process, which takes 3 s on an idle machine.
const startTimeout = 2 * time.Minute

// await calls ready until it returns nil. It kills the process if that takes longer than startTimeout, or if ctx
// ends.
func (p *process) await(ctx context.Context, interval time.Duration, ready func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, interval, startTimeout, true, func(ctx context.Context) (bool, error) {
		if !p.Running() {
			return false, p.failure()
		}
		last = ready(ctx)
		return last == nil, nil
	})
	switch {
	case err == nil:
		return nil
	case errors.Is(ctx.Err(), context.Canceled):
		err = fmt.Errorf("wait for %s: %w", p.Name, context.Cause(ctx))
	case wait.Interrupted(err):
		err = fmt.Errorf("%s not ready: %w (%w), last line of its log: %s", p.Name, last, err, p.lastLine())
	}
	_ = p.Kill() // it may have ended
	return err
}

// lineLength is the maximum length in bytes of a line in an error message.
const lineLength = 400

// lastLine returns the last line of the log, or why it cannot be read.
func (p *process) lastLine() string {
	text, err := os.ReadFile(p.log)
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

// progressInterval is the time between lines of a log that show the same stage, so that silence means trouble.
const progressInterval = 10 * time.Second

// progress displays the state of a job: on a terminal in one line that is overwritten, elsewhere in a line per stage
// and one every ten seconds.
type progress struct {
	out      io.Writer
	terminal bool
	started  time.Time
	stop     chan struct{}
	stopped  sync.WaitGroup

	mu          sync.Mutex
	stage, line string
}

// newProgress starts a display on out, which may be nil. Its method close ends it.
func newProgress(out io.Writer) *progress {
	p := &progress{out: out, started: time.Now(), stop: make(chan struct{})}
	if out == nil {
		p.out = io.Discard
	}
	file, is := out.(*os.File)
	p.terminal = is && term.IsTerminal(int(file.Fd()))
	p.stopped.Go(func() {
		tick := time.NewTicker(progressInterval)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				p.mu.Lock()
				p.render()
				p.mu.Unlock()
			case <-p.stop:
				return
			}
		}
	})
	return p
}

// show sets the state. Each format is a stage, whose first state a log has at once.
func (p *progress) show(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	news := p.stage != format
	p.stage, p.line = format, fmt.Sprintf(format, args...)
	if news || p.terminal {
		p.render()
	}
}

// note prints a line that stays.
func (p *progress) note(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.terminal {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
	fmt.Fprintf(p.out, format+"\n", args...)
}

// render prints the state. The caller holds the mutex.
func (p *progress) render() {
	if p.line == "" {
		return
	}
	line := fmt.Sprintf("%s (%s)", p.line, time.Since(p.started).Round(time.Second))
	if p.terminal {
		fmt.Fprint(p.out, "\r", line, "\x1b[K")
		return
	}
	fmt.Fprintln(p.out, line)
}

// close ends the display. A terminal keeps the last state.
func (p *progress) close() {
	close(p.stop)
	p.stopped.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.terminal && p.line != "" {
		fmt.Fprintln(p.out)
	}
}

// Ready returns nil if clients can start: the API server reports that it is ready, and the namespace default
// exists, which takes longer.
func Ready(ctx context.Context, config *rest.Config) error {
	client, err := corev1client.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("use the cluster: %w", err)
	}
	for _, path := range []string{"/readyz", "/api/v1/namespaces/" + metav1.NamespaceDefault} {
		// No retries, because a starting API server may request a pause of a second before each.
		if err := client.RESTClient().Get().AbsPath(path).MaxRetries(0).Do(ctx).Error(); err != nil {
			return fmt.Errorf("ask the API server for %s: %w", path, err)
		}
	}
	return nil
}
