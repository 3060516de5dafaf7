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

// natsVariable names NATS. It must be set for an existing installation.
const natsVariable = "CURLMETHAT_NATS_URL"

// filled shows how the valid sample gets its data.
func filled(ctx context.Context, d *demo) error {
	if err := d.create(ctx, d.samples.valid); err != nil {
		return err
	}
	return d.printData(ctx, d.samples.valid.Name)
}

// explained shows the Event of the invalid sample.
func explained(ctx context.Context, d *demo) error {
	name := d.samples.invalid.Name
	if err := d.create(ctx, d.samples.invalid); err != nil {
		return err
	}
	var events []corev1.Event
	if err := d.waitFor(ctx, writeTimeout, "`kubectl describe configmap "+name+"` shows an Event",
		func(ctx context.Context) (found bool, err error) {
			events, err = d.events(ctx, name)
			return len(events) > 0, err
		}); err != nil {
		return err
	}
	fmt.Fprint(d.Out, "  Events:\n")
	for _, e := range events {
		fmt.Fprintf(d.Out, "    %s  %s  %s\n%s", e.Type, e.Reason, e.ReportingController, wrap(e.Message, "      "))
	}
	return nil
}

// hostDown shows the failure of a request to a server that is not running yet.
func hostDown(ctx context.Context, d *demo) error {
	if err := d.create(ctx, d.samples.down); err != nil {
		return err
	}
	if d.Installed {
		fmt.Fprint(d.Out, "The fetcher tries six times in about a minute, and then gives up.\n")
	} else {
		fmt.Fprintf(d.Out, "The fetcher of the demo tries %d times and then gives up. By default, it tries\n"+
			"6 times in about a minute.\n", attempts)
	}
	if err := d.waitFor(ctx, giveUpTimeout, "The failure is listed", func(ctx context.Context) (bool, error) {
		var listed bytes.Buffer
		err := d.curlctl(ctx, &listed, "failures", "--name="+downName, "--output=name")
		return listed.Len() > 0, err
	}); err != nil {
		return err
	}
	if d.system.NATS != "" {
		fmt.Fprintf(d.Out, "$ export %s=%s\n", natsVariable, d.system.NATS)
	}
	return d.show(ctx, "failures", "--name="+downName)
}

// replayed starts that server and replays the failure.
func replayed(ctx context.Context, d *demo) error {
	if err := d.serve(ctx, downPort); err != nil {
		return err
	}
	fmt.Fprintf(d.Out, "%s is up now.\n\n", d.url(downPort, ""))
	if err := d.show(ctx, "replay", "--name="+downName, "--wait"); err != nil {
		return err
	}
	fmt.Fprintln(d.Out)
	return d.printData(ctx, d.samples.down.Name)
}

// create creates a ConfigMap and prints its annotations.
func (d *demo) create(ctx context.Context, cm *corev1.ConfigMap) error {
	if _, err := d.client.ConfigMaps(namespace).Create(ctx, cm, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create ConfigMap %s: %w", cm.Name, err)
	}
	fmt.Fprintf(d.Out, "  kind: ConfigMap\n  metadata:\n    name: %s\n    annotations:\n", cm.Name)
	for name, value := range cm.Annotations {
		fmt.Fprintf(d.Out, "      %s: %s\n", name, value)
	}
	fmt.Fprintln(d.Out)
	return nil
}

// printData waits for data and prints it.
func (d *demo) printData(ctx context.Context, name string) error {
	var data map[string]string
	if err := d.waitFor(ctx, writeTimeout, "The data is there", func(ctx context.Context) (bool, error) {
		cm, err := d.client.ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		data = cm.Data
		return len(data) > 0, nil
	}); err != nil {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(data)) {
		fmt.Fprintf(d.Out, "  %s: |\n%s", key, wrap(data[key], "    "))
	}
	return nil
}

// removeEarlier removes the objects of an earlier demo in this cluster.
func (d *demo) removeEarlier(ctx context.Context) error {
	for _, cm := range []*corev1.ConfigMap{d.samples.valid, d.samples.invalid, d.samples.down} {
		if err := d.client.ConfigMaps(namespace).Delete(ctx, cm.Name, metav1.DeleteOptions{}); err == nil {
			fmt.Fprintf(d.Out, "Removed ConfigMap %s, left by an earlier demo.\n", cm.Name)
		}
	}
	if err := d.watchers.Delete(ctx, watcherName, metav1.DeleteOptions{}); err == nil {
		fmt.Fprintf(d.Out, "Removed Watcher %s, left by an earlier demo.\n", watcherName)
	}
	return ctx.Err()
}

// show prints a command of curlctl and its output.
func (d *demo) show(ctx context.Context, args ...string) error {
	fmt.Fprintf(d.Out, "$ %s ctl %s\n", d.Program, strings.Join(args, " "))
	return d.curlctl(ctx, d.Out, args...)
}

// curlctl runs a command of curlctl, which is part of this program.
func (d *demo) curlctl(ctx context.Context, out io.Writer, args ...string) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	cmd := exec.CommandContext(ctx, self, append([]string{"ctl"}, args...)...)
	cmd.Env = d.environment()
	if d.system.Kubeconfig != "" {
		cmd.Env = append(cmd.Env, "KUBECONFIG="+d.system.Kubeconfig)
	}
	if d.system.NATS != "" {
		cmd.Env = append(cmd.Env, natsVariable+"="+d.system.NATS)
	}
	if d.kube.Context != "" {
		cmd.Env = append(cmd.Env, "CURLMETHAT_KUBE_CONTEXT="+d.kube.Context)
	}
	var problem bytes.Buffer
	cmd.Stdout, cmd.Stderr = out, &problem
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("run %s %s: %w: %s", d.Program, args[0], err, strings.TrimSpace(problem.String()))
	}
	return nil
}

// environment returns the environment of curlctl, without flags that the user has set for another installation.
func (d *demo) environment() []string {
	return slices.DeleteFunc(os.Environ(), func(variable string) bool {
		return strings.HasPrefix(variable, "CURLMETHAT_") && !(d.Installed && strings.HasPrefix(variable, "CURLMETHAT_NATS_"))
	})
}
