package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"

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
	err := d.request("POST").SetHeader("Content-Type", "application/yaml").Body([]byte(manifest)).Do(ctx).Error()
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

// request begins a request about Watchers.
func (d *demo) request(verb string) *rest.Request {
	return d.client.RESTClient().Verb(verb).
		AbsPath("/apis", watchv1.GroupVersion().String(), "namespaces", namespace, watchv1.Resource().Resource)
}

func (d *demo) watcherIsReady(ctx context.Context) (bool, error) {
	text, err := d.request("GET").Name(watcherName).Do(ctx).Raw()
	if err != nil {
		return false, fmt.Errorf("read Watcher %s: %w", watcherName, err)
	}
	var w watchv1.Watcher
	err = json.Unmarshal(text, &w)
	return meta.IsStatusConditionTrue(w.Status.Conditions, watchv1.ConditionReady), err
}
