package demo

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	watchv1 "github.com/kv8s/curl-me-that/proto/watch/v1alpha1"
)

const (
	watcherName = "watched"
	// watcherManifest is a format for the API version, the name and the URL.
	watcherManifest = `apiVersion: %s
kind: Watcher
metadata:
  name: %s
spec:
  configData:
    LEVEL: warn
  sources:
  - key: joke
    url: %s
`
)

// watched creates a Watcher and prints its state, if the cluster serves Watchers.
func watched(ctx context.Context, d *demo) error {
	manifest := fmt.Sprintf(watcherManifest, watchv1.GroupVersion(), watcherName, d.url(jokePort, jokePath))
	_, err := d.watchers.Patch(ctx, watcherName, types.ApplyPatchType, []byte(manifest),
		metav1.PatchOptions{FieldManager: "demo"})
	if apierrors.IsNotFound(err) {
		fmt.Fprint(d.Out, "The Watcher resource is not installed. To install it, apply\nwatchers.yaml (`make manifests`).\n")
		return nil
	}
	if err != nil {
		return fmt.Errorf("create Watcher %s: %w", watcherName, err)
	}
	for line := range strings.Lines(manifest) {
		fmt.Fprint(d.Out, "  "+line)
	}
	fmt.Fprintln(d.Out)
	if err := d.waitFor(ctx, writeTimeout, "The Watcher is ready", d.watcherIsReady); err != nil {
		return err
	}
	if err := d.show(ctx, "status", namespace+"/"+watcherName); err != nil {
		return err
	}
	fmt.Fprintln(d.Out)
	return d.printData(ctx, watcherName+"-config")
}

func (d *demo) watcherIsReady(ctx context.Context) (bool, error) {
	w, err := d.watchers.Get(ctx, watcherName, metav1.GetOptions{})
	if err != nil {
		return false, fmt.Errorf("read Watcher %s: %w", watcherName, err)
	}
	return meta.IsStatusConditionTrue(w.Status.Conditions, watchv1.ConditionReady), nil
}
