package controlplane

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

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

// start runs a program of a folder in this one, with its own log.
func (d dataDir) start(assets, name string, args ...string) (*process, error) {
	p := &process{log: d.path("logs", name+".log")}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open log of %s: %w", name, err)
	}
	defer log.Close()
	cmd := exec.Command(filepath.Join(assets, name), args...)
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

// await calls ready until it returns nil. It kills the process if that takes longer than startTimeout, or if ctx or
// a process that it needs ends.
func (p *process) await(
	ctx context.Context, interval time.Duration, ready func(context.Context) error, needed ...*process,
) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, interval, startTimeout, true, func(ctx context.Context) (bool, error) {
		for _, process := range append(needed, p) {
			if !process.Running() {
				return false, process.failure()
			}
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

// lastLine returns the last line of the log, or why it cannot be read. If the program panicked, it returns the reason
// instead, because the last line is one of a stack.
func (p *process) lastLine() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	last := ""
	for line := range strings.Lines(string(text)) {
		var logged struct{ Level, Msg, Error string }
		if json.Unmarshal([]byte(line), &logged) == nil && (logged.Level == "panic" || logged.Level == "fatal") {
			return strings.TrimSuffix(logged.Msg+": "+logged.Error, ": ")
		}
		last = cmp.Or(strings.TrimSpace(line), last)
	}
	if last == "" {
		return "it logged nothing"
	}
	if len(last) > lineLength {
		last = strings.ToValidUTF8(last[:lineLength], "") + "…"
	}
	return last
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
