// Command watchercrd reads the CustomResourceDefinition from controller-gen, and prints
// the installed manifest. `make generate` runs it.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"sigs.k8s.io/yaml"
)

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "watchercrd:", err)
		os.Exit(1)
	}
}

// run prints the CRD without the descriptions of types of core/v1.
func run(in io.Reader, out io.Writer) error {
	text, err := io.ReadAll(in)
	if err != nil {
		return fmt.Errorf("read the definition: %w", err)
	}
	crd := map[string]any{}
	if err := yaml.Unmarshal(text, &crd); err != nil {
		return fmt.Errorf("read the definition: %w", err)
	}
	versions, _ := child(crd, "spec")["versions"].([]any)
	if len(versions) != 1 {
		return errors.New("read the definition: it does not have one version")
	}
	// The documentation of Kubernetes has them, and with them the CRD would not fit into the annotation of kubectl
	// apply.
	for _, name := range []string{"container", "volume", "imagePullSecrets"} {
		undescribe(child(versions[0], "schema", "openAPIV3Schema", "properties", "spec", "properties", name, "properties"))
	}
	written, err := yaml.Marshal(crd)
	if err != nil {
		return fmt.Errorf("write the definition: %w", err)
	}
	_, err = fmt.Fprintf(out, "# Made by 'make generate' from proto/watch/v1alpha1.\n%s", written)
	return err
}

// child returns the object below names, or nil.
func child(of any, names ...string) map[string]any {
	object, _ := of.(map[string]any)
	for _, name := range names {
		object, _ = object[name].(map[string]any)
	}
	return object
}

// undescribe removes all descriptions below a node. A property with the name description is kept, because it is an
// object and not a string.
func undescribe(node any) {
	object := child(node)
	if _, text := object["description"].(string); text {
		delete(object, "description")
	}
	for _, inner := range object {
		undescribe(inner)
	}
}
