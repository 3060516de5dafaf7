package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/rest"

	watchv1 "github.com/kv8s/curl-me-that/proto/watch/v1alpha1"
)

const (
	watcherName = "watched"
	// asTable asks for the columns that kubectl prints.
	asTable = "application/json;as=Table;v=v1;g=meta.k8s.io"
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
	if _, err := d.watchers(ctx); apierrors.IsNotFound(err) {
		fmt.Fprint(d.Out, "The Watcher resource is not installed. To install it, apply\nwatchers.yaml (`make manifests`).\n")
		return nil
	}
	if err := d.createWatcher(ctx); err != nil {
		return err
	}
	var table *metav1.Table
	if err := d.waitFor(ctx, writeTimeout, "`kubectl get watcher "+watcherName+"` shows that it is ready",
		func(ctx context.Context) (ready bool, err error) {
			table, err = d.watchers(ctx)
			return err == nil && isReady(table), err
		}); err != nil {
		return err
	}
	if err := d.printTable(table); err != nil {
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

// createWatcher creates the Watcher and prints it.
func (d *demo) createWatcher(ctx context.Context) error {
	manifest := fmt.Sprintf(watcherManifest, watchv1.GroupVersion(), watcherName, d.url(jokePort, jokePath))
	err := d.request("POST").SetHeader("Content-Type", "application/yaml").Body([]byte(manifest)).Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("create Watcher %s: %w", watcherName, err)
	}
	for line := range strings.Lines(manifest) {
		fmt.Fprint(d.Out, "  "+line)
	}
	fmt.Fprintln(d.Out)
	return nil
}

// watchers returns the Watcher of the demo as a table, as kubectl prints it.
func (d *demo) watchers(ctx context.Context) (*metav1.Table, error) {
	text, err := d.request("GET").SetHeader("Accept", asTable).
		Param("fieldSelector", fields.OneTermEqualSelector("metadata.name", watcherName).String()).Do(ctx).Raw()
	if err != nil {
		return nil, fmt.Errorf("list Watchers: %w", err)
	}
	table := &metav1.Table{}
	if err := json.Unmarshal(text, table); err != nil {
		return nil, fmt.Errorf("list Watchers: %w", err)
	}
	return table, nil
}

// isReady reports whether the Watcher exists and is Ready.
func isReady(t *metav1.Table) bool {
	column := slices.IndexFunc(t.ColumnDefinitions, func(c metav1.TableColumnDefinition) bool {
		return c.Name == watchv1.ConditionReady
	})
	return column >= 0 && len(t.Rows) == 1 && t.Rows[0].Cells[column] == string(metav1.ConditionTrue)
}

// printTable prints the columns that kubectl prints without -o wide.
func (d *demo) printTable(t *metav1.Table) error {
	out := tabwriter.NewWriter(d.Out, 0, 0, 3, ' ', 0)
	for _, row := range append([]metav1.TableRow{{}}, t.Rows...) {
		var cells []string
		for i, column := range t.ColumnDefinitions {
			switch {
			case column.Priority > 0:
			case row.Cells == nil:
				cells = append(cells, strings.ToUpper(column.Name))
			default:
				cells = append(cells, fmt.Sprint(row.Cells[i]))
			}
		}
		fmt.Fprintln(out, strings.Join(cells, "\t"))
	}
	return out.Flush()
}
