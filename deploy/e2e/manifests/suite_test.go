package manifests_test

import (
	"cmp"
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/proto/suitetest"
)

func TestManifests(t *testing.T) { suitetest.Run(t, "Manifests") }

const (
	chart = "../../chart"
	// namespace is the release's namespace in the rendered chart.
	namespace = "curl-me-that"
)

var (
	cluster *apiServer
	// rendered has the rendered objects by the name of the values.
	rendered map[string][]object
)

var _ = BeforeSuite(func(ctx SpecContext) {
	cluster = connect(ctx)
	rendered = map[string][]object{}
	files := suitetest.Must(filepath.Glob(filepath.Join(chart, "ci", "*-values.yaml")))
	Expect(files).To(HaveLen(7))
	for _, file := range files {
		rendered[valuesName(file)] = template(ctx, file)
	}
	for _, name := range []string{installed, small, watchers, sidecars} {
		text := suitetest.Must(os.ReadFile(filepath.Join(cmp.Or(os.Getenv("MANIFESTS"), "../../kubernetes"), name)))
		rendered[name] = parse(text)
	}
})
