package demo

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// natsVariable is where NATS is; for an installation that runs already it is set.
const natsVariable = "CURLMETHAT_NATS_URL"

// filled is the valid sample.
func filled(ctx context.Context, s *story) error {
	if err := s.create(ctx, s.samples.valid); err != nil {
		return err
	}
	return s.printData(ctx, s.samples.valid.Name)
}

// explained is the invalid sample.
func explained(ctx context.Context, s *story) error {
	name := s.samples.invalid.Name
	if err := s.create(ctx, s.samples.invalid); err != nil {
		return err
	}
	if err := s.waitFor(ctx, writeTimeout, "What `kubectl describe configmap "+name+"` prints", func(ctx context.Context) (bool, error) {
		events, err := s.events(ctx, name)
		return len(events) > 0, err
	}); err != nil {
		return err
	}
	return s.describe(ctx, name)
}

// hostDown asks for a page of a server that is not started yet.
func hostDown(ctx context.Context, s *story) error {
	if err := s.create(ctx, s.samples.down); err != nil {
		return err
	}
	if s.Installed {
		fmt.Fprint(s.Out, "The fetcher tries it six times within a minute or two, and then gives up.\n")
	} else {
		fmt.Fprintf(s.Out, "The fetcher of the demo tries it %d times, and then gives up; by default, one\ntries 6 times within a minute.\n", attempts)
	}
	if err := s.waitFor(ctx, giveUpTimeout, "It is in the list of what was given up", func(ctx context.Context) (bool, error) {
		var listed bytes.Buffer
		err := s.operate(ctx, &listed, "failures", "--name="+downName, "--output=name")
		return listed.Len() > 0, err
	}); err != nil {
		return err
	}
	if s.system.NATS != "" {
		fmt.Fprintf(s.Out, "$ export %s=%s\n", natsVariable, s.system.NATS)
	}
	return s.typed(ctx, "failures", "--name="+downName)
}

// replayed starts that server.
func replayed(ctx context.Context, s *story) error {
	if err := s.hosts.serve(ctx, downPort); err != nil {
		return err
	}
	fmt.Fprintf(s.Out, "%s responds from now on.\n\n", s.hosts.url(downPort, ""))
	if err := s.typed(ctx, "replay", "--name="+downName, "--wait"); err != nil {
		return err
	}
	fmt.Fprintln(s.Out)
	return s.printData(ctx, s.samples.down.Name)
}

// create creates a ConfigMap and prints what it asks for.
func (s *story) create(ctx context.Context, cm *corev1.ConfigMap) error {
	if _, err := s.client.ConfigMaps(namespace).Create(ctx, cm, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create ConfigMap %s: %w", cm.Name, err)
	}
	fmt.Fprintf(s.Out, "  kind: ConfigMap\n  metadata:\n    name: %s\n    annotations:\n", cm.Name)
	for name, value := range cm.Annotations {
		fmt.Fprintf(s.Out, "      %s: %s\n", name, value)
	}
	fmt.Fprintln(s.Out)
	return nil
}

// printData waits for data and prints it.
func (s *story) printData(ctx context.Context, name string) error {
	var data map[string]string
	if err := s.waitFor(ctx, writeTimeout, "Its data", func(ctx context.Context) (bool, error) {
		cm, err := s.client.ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		data = cm.Data
		return len(data) > 0, nil
	}); err != nil {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(data)) {
		fmt.Fprintf(s.Out, "  %s: |\n%s", key, wrap(data[key], "    "))
	}
	return nil
}

// removeEarlier removes what an earlier demo has left in this cluster.
func (s *story) removeEarlier(ctx context.Context) error {
	for _, cm := range []*corev1.ConfigMap{s.samples.valid, s.samples.invalid, s.samples.down} {
		if err := s.client.ConfigMaps(namespace).Delete(ctx, cm.Name, metav1.DeleteOptions{}); err == nil {
			fmt.Fprintf(s.Out, "Removed ConfigMap %s of an earlier demo.\n", cm.Name)
		}
	}
	if err := s.request("DELETE").Name(watcherName).Do(ctx).Error(); err == nil {
		fmt.Fprintf(s.Out, "Removed Watcher %s of an earlier demo.\n", watcherName)
	}
	return ctx.Err()
}

// typed prints a command of the operator's tool and what it prints.
func (s *story) typed(ctx context.Context, args ...string) error {
	fmt.Fprintf(s.Out, "$ %s ctl %s\n", s.Program, strings.Join(args, " "))
	return s.operate(ctx, s.Out, args...)
}

// operate runs the operator's tool, which is part of this program, as a person would.
func (s *story) operate(ctx context.Context, out io.Writer, args ...string) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	cmd := exec.CommandContext(ctx, self, append([]string{"ctl"}, args...)...)
	cmd.Env = os.Environ()
	if s.system.Kubeconfig != "" { // the console, too, looks at the cluster of the demo
		cmd.Env = append(cmd.Env, "KUBECONFIG="+s.system.Kubeconfig)
	}
	if s.system.NATS != "" {
		cmd.Env = append(cmd.Env, natsVariable+"="+s.system.NATS)
	}
	var problem bytes.Buffer
	cmd.Stdout, cmd.Stderr = out, &problem
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("run %s %s: %w: %s", s.Program, args[0], err, strings.TrimSpace(problem.String()))
	}
	return nil
}
