package main

import (
	"errors"
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// embedded are the fields of types of core/v1, whose many descriptions are in the
// documentation of Kubernetes and would not fit into an annotation.
var embedded = []string{"container", "volume", "imagePullSecrets"}

// writeManifest prints the CRD for installation: without descriptions of core/v1, and kept when a
// release of the chart is removed, because all Watchers would be deleted with it.
func writeManifest(out io.Writer, text []byte) error {
	crd, schema, err := parse(text)
	if err != nil {
		return err
	}
	spec := child(child(schema, "properties"), "spec")
	for _, name := range embedded {
		field := child(child(spec, "properties"), name)
		properties := child(field, "properties")
		undescribe(properties)
	}
	annotations := crd.GetAnnotations()
	annotations["helm.sh/resource-policy"] = "keep"
	crd.SetAnnotations(annotations)
	crd.SetLabels(map[string]string{"app.kubernetes.io/name": "curl-me-that", "app.kubernetes.io/part-of": "curl-me-that"})
	written, err := yaml.Marshal(crd.Object)
	if err != nil {
		return fmt.Errorf("write the definition: %w", err)
	}
	_, err = fmt.Fprintf(out, "# Made by 'make generate' from proto/watch/v1alpha1.\n%s", written)
	return err
}

// parse returns the definition and the schema of its only version.
func parse(text []byte) (*unstructured.Unstructured, map[string]any, error) {
	crd := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(text, &crd.Object); err != nil {
		return nil, nil, fmt.Errorf("read the definition: %w", err)
	}
	versions, _, err := unstructured.NestedSlice(crd.Object, "spec", "versions")
	if err != nil || len(versions) != 1 {
		return nil, nil, errors.New("read the definition: it does not have one version")
	}
	// NestedSlice returns a copy, but the caller changes the definition.
	version, _ := child(crd.Object, "spec")["versions"].([]any)[0].(map[string]any)
	return crd, child(child(version, "schema"), "openAPIV3Schema"), nil
}

// child returns the object under a name, or nil.
func child(of map[string]any, name string) map[string]any {
	found, _ := of[name].(map[string]any)
	return found
}

// undescribe removes all descriptions in schemas.
func undescribe(schemas map[string]any) {
	for _, value := range schemas {
		schema, _ := value.(map[string]any)
		delete(schema, "description")
		undescribe(child(schema, "properties"))
		for _, inner := range []string{"items", "additionalProperties"} {
			if nested := child(schema, inner); nested != nil {
				undescribe(map[string]any{inner: nested})
			}
		}
	}
}
