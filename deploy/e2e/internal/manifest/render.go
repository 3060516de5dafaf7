// Package manifest renders the chart like helm template, and deletes objects like kubectl delete.
package manifest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kv8s/curl-me-that/deploy/local/controlplane"
)

// errNoHelm means that $HELM is not set.
var errNoHelm = errors.New("set HELM to the program, or run `make test` or `make test-cluster`")

// Chart selects the templates and values to render.
type Chart struct {
	// Dir is the folder of the chart.
	Dir string
	// Release and Namespace to render for.
	Release, Namespace string
	// Templates are files in the folder templates (empty means all).
	Templates []string
	// Set has values as for helm --set.
	Set []string
	// Flags are additional flags of helm template.
	Flags []string
}

// Render runs $HELM and returns the objects of the templates. The error includes the messages of helm.
func Render(ctx context.Context, c Chart) ([]*unstructured.Unstructured, error) {
	args := []string{"template", c.Release, c.Dir, "--namespace", c.Namespace}
	for _, t := range c.Templates {
		args = append(args, "--show-only", "templates/"+t)
	}
	for _, s := range c.Set {
		args = append(args, "--set", s)
	}
	args = append(args, c.Flags...)
	out, err := Helm(ctx, nil, args...)
	if err != nil {
		return nil, fmt.Errorf("render %s: %w", c.Dir, err)
	}
	return controlplane.Decode(out)
}

// Helm runs $HELM without the configuration of the user, and returns its output. The error includes its
// messages.
func Helm(ctx context.Context, stdin io.Reader, args ...string) (output []byte, err error) {
	program := os.Getenv("HELM")
	if program == "" {
		return nil, errNoHelm
	}
	home, err := os.MkdirTemp("", "helm-")
	if err != nil {
		return nil, fmt.Errorf("make a home for helm: %w", err)
	}
	defer os.RemoveAll(home)
	//nolint:gosec // the tests choose the program
	cmd := exec.CommandContext(ctx, program, args...)
	var messages bytes.Buffer
	cmd.Stdin, cmd.Stderr = stdin, &messages
	cmd.Env = append(os.Environ(), "HOME="+home)
	if output, err = cmd.Output(); err != nil {
		return nil, fmt.Errorf("helm %s: %w: %s", args[0], err, messages.String())
	}
	return output, nil
}

// Manifests returns the folder of install.yaml and the others: that of $MANIFESTS, or a temporary one, in which it
// renders them for the images of a version.
func Manifests(ctx context.Context, version string) (folder string, err error) {
	if folder = os.Getenv("MANIFESTS"); folder != "" {
		return folder, nil
	}
	if os.Getenv("HELM") == "" {
		return "", errNoHelm
	}
	if folder, err = os.MkdirTemp("", "manifests-"); err != nil {
		return "", fmt.Errorf("make a folder for the manifests: %w", err)
	}
	out, err := exec.CommandContext(ctx, "../../tools/manifests", folder, "--set-string", "image.tag="+version).
		CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("render the manifests: %w: %s", err, out)
	}
	return folder, nil
}

// Manager is the field manager of kubectl apply.
const Manager = "kubectl"

// Delete deletes objects in reverse order, and their dependents. It ignores missing objects.
func Delete(
	ctx context.Context, a *controlplane.Applier, namespace string, objects []*unstructured.Unstructured,
) error {
	for _, o := range slices.Backward(objects) {
		resource, err := a.Resource(namespace, o)
		if err != nil {
			return fmt.Errorf("delete %s %s: %w", o.GetKind(), o.GetName(), err)
		}
		err = resource.Delete(ctx, o.GetName(),
			metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete %s %s: %w", o.GetKind(), o.GetName(), err)
		}
	}
	return nil
}
