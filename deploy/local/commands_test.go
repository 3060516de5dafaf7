package local_test

import (
	_ "embed"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/template"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/kv8s/curl-me-that/deploy/curlctl"
	"github.com/kv8s/curl-me-that/deploy/local"
	"github.com/kv8s/curl-me-that/deploy/testkit/kubetest"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/fetcher"
	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/process"
	"github.com/kv8s/curl-me-that/proto/process/metric"
	"github.com/kv8s/curl-me-that/watcher"
	"github.com/kv8s/curl-me-that/watcher/keeper"
	"github.com/kv8s/curl-me-that/writer"
)

var (
	// makeCommand matches a call of make in a block or in a sentence.
	makeCommand = regexp.MustCompile("(?m)(?:^(?:\\$ )?|`)make ([a-z][a-z-]*)")
	// makeTarget matches a target of the Makefile.
	makeTarget = regexp.MustCompile(`(?m)^([a-z][a-z-]*):`)
	// started matches a service with its flags, on a line of a block.
	started = regexp.MustCompile(`(?m)^(?:\$ )?(?:bin/)?(watcher|fetcher|writer|keeper|curl-me-that) (--[^\n#]*)`)
	// flagInLine matches a flag of a command line.
	flagInLine = regexp.MustCompile(`(?:^|\s)--([a-z][a-z0-9-]*)`)
	// flagAlone matches a flag without its command in a sentence.
	flagAlone = regexp.MustCompile("`--([a-z][a-z0-9-]*)(?:[= ][^`]*)?`")
)

// foreignFlags are flags of other programs that pages mention without the command.
var foreignFlags = []string{
	"profile", "set", "allow-pub", "allow-sub", "watched-dir", "volumes", "unsafe-allow-generic-targets",
}

// flagsOf returns the flags of a command and its subcommands.
func flagsOf(c *cobra.Command) map[string]bool {
	all := map[string]bool{"help": true, "version": true}
	add := func(f *pflag.Flag) { all[f.Name] = true }
	c.Flags().VisitAll(add)
	c.PersistentFlags().VisitAll(add)
	for _, sub := range c.Commands() {
		for name := range flagsOf(sub) {
			all[name] = true
		}
	}
	return all
}

// programs returns the flags of our programs.
func programs() map[string]map[string]bool {
	all := map[string]map[string]bool{
		"watcher": flagsOf(watcher.Command(nil)), "fetcher": flagsOf(fetcher.Command()), "writer": flagsOf(writer.Command()),
		"keeper": flagsOf(keeper.Command(nil)), "curlctl": flagsOf(curlctl.Command("curlctl")),
	}
	whole, config := &cobra.Command{}, local.DefaultConfig()
	config.BindFlags(whole.Flags())
	all["curl-me-that"] = flagsOf(whole)
	return all
}

// The commands of curlctl have a spec of their own.
var _ = It("Every page names existing make targets and flags", func() {
	targets := map[string]bool{}
	for _, match := range makeTarget.FindAllStringSubmatch(string(text(filepath.Join(root, "Makefile"))), -1) {
		targets[match[1]] = true
	}
	flags := programs()
	known := map[string]bool{}
	for _, name := range foreignFlags {
		known[name] = true
	}
	for _, of := range flags {
		for name := range of {
			known[name] = true
		}
	}
	files := suitetest.Must(Paths(os.DirFS(root)))
	commands, unknown := 0, []string{}
	check := func(exists bool, file, command string) {
		commands++
		if !exists {
			unknown = append(unknown, file+": "+command)
		}
	}
	for _, file := range files {
		if filepath.Ext(file) != ".md" {
			continue
		}
		page := text(filepath.Join(root, file))
		for _, match := range makeCommand.FindAllStringSubmatch(string(page), -1) {
			check(targets[match[1]], file, "make "+match[1])
		}
		for _, match := range started.FindAllStringSubmatch(string(page), -1) {
			for _, flag := range flagInLine.FindAllStringSubmatch(match[2], -1) {
				check(flags[match[1]][flag[1]], file, match[1]+" --"+flag[1])
			}
		}
		for _, match := range flagAlone.FindAllStringSubmatch(string(page), -1) {
			check(known[match[1]], file, "--"+match[1])
		}
	}
	Expect(unknown).To(BeEmpty())
	Expect(commands).To(BeNumerically(">", 100), "commands found")
})

// workflow is a GitHub workflow, as far as the specs need it.
type workflow struct {
	Jobs map[string]struct {
		Steps []struct {
			Uses string         `json:"uses"`
			With map[string]any `json:"with"`
		} `json:"steps"`
	} `json:"jobs"`
}

var _ = Describe("The release workflow", func() {
	var content string
	BeforeEach(func() { content = string(text(filepath.Join(root, ".github/workflows/release.yaml"))) })

	It("restores no cache", func() {
		// Actions that restore a cache unless this input is false.
		caching := map[string]string{"actions/setup-go": "cache", "docker/setup-buildx-action": "cache-binary"}
		var w workflow
		Expect(yaml.Unmarshal([]byte(content), &w)).To(Succeed())
		setups := 0
		for name, job := range w.Jobs {
			for _, step := range job.Steps {
				action, _, _ := strings.Cut(step.Uses, "@")
				Expect(action).NotTo(HavePrefix("actions/cache"), name)
				Expect(action).NotTo(HavePrefix("./"), "%s: actions of this repository restore caches", name)
				if input := caching[action]; input != "" {
					Expect(step.With).To(HaveKeyWithValue(input, false), "%s: %s", name, action)
					setups++
				}
			}
		}
		Expect(setups).To(Equal(3))
	})

	It("uses the Go version of the images", func() {
		dockerfile := string(text(filepath.Join(root, "deploy/docker/Dockerfile")))
		version := regexp.MustCompile(`golang:([\d.]+)-`).FindStringSubmatch(dockerfile)
		Expect(version).To(HaveLen(2))
		found := regexp.MustCompile(`go-version: ([\d.]+)`).FindAllStringSubmatch(content, -1)
		Expect(found).To(HaveLen(2))
		for _, f := range found {
			Expect(f[1]).To(Equal(version[1]))
		}
	})
})

var _ = It("The Dockerfile pins the base images by digest", func() {
	dockerfile := string(text(filepath.Join(root, "deploy/docker/Dockerfile")))
	stages := map[string]bool{"scratch": true, "${GO_IMAGE}": true, "${BASE_IMAGE}": true}
	pinned := 0
	for _, from := range regexp.MustCompile(`(?m)^FROM (?:--platform=\S+ )?(\S+)(?: AS (\S+))?$`).
		FindAllStringSubmatch(dockerfile, -1) {
		if !stages[from[1]] {
			Expect(from[1]).To(MatchRegexp(`^[\w./-]+:[\w.-]+@sha256:[0-9a-f]{64}$`))
			pinned++
		}
		stages[from[2]] = true
	}
	Expect(pinned).To(Equal(2))
	Expect(dockerfile).To(ContainSubstring("\nARG GO_IMAGE=go\nARG BASE_IMAGE=base\n"))
})

const samples = "../samples"

var _ = Describe("The samples", func() {
	var manifests []string
	BeforeEach(func() {
		for _, file := range []string{"annotations.yaml", "config-map-valid.yaml", "config-map-invalid.yaml"} {
			manifests = append(manifests, strings.Split(string(text(filepath.Join(samples, file))), "\n---\n")...)
		}
		Expect(manifests).To(HaveEach(HavePrefix("# ")))
	})

	It("have no unknown fields and are accepted by the API server", func(ctx SpecContext) {
		client := suitetest.Must(kubernetes.NewForConfig(kubetest.Config(GinkgoTB())))
		for _, manifest := range manifests {
			err := client.CoreV1().RESTClient().Post().Namespace("default").Resource("configmaps").
				Param("dryRun", "All").Param("fieldValidation", "Strict").
				SetHeader("Content-Type", "application/yaml").Body([]byte(manifest)).Do(ctx).Error()
			Expect(err).NotTo(HaveOccurred(), manifest)
		}
	})

	It("use every annotation, as its parser reads it", func() {
		grammar := suitetest.Must(annotation.New(annotation.Defaults()))
		used := map[string]bool{}
		for _, manifest := range manifests {
			var object corev1.ConfigMap
			Expect(yaml.UnmarshalStrict([]byte(manifest), &object)).To(Succeed(), manifest)
			for name := range object.Annotations {
				used[name] = true
			}
			request, err := grammar.Parse(object.Annotations)
			if strings.Contains(object.Name, "invalid") {
				Expect(err).To(MatchError(ContainSubstring("does not match expected format key=url")), manifest)
				continue
			}
			Expect(err).NotTo(HaveOccurred(), manifest)
			Expect(request.Pairs).NotTo(BeEmpty(), manifest)
		}
		Expect(used).To(And(HaveKey(annotation.DefaultKey), HaveKey(annotation.LegacyKey)))
		for _, name := range annotation.OptionNames() {
			Expect(used).To(HaveKey("x-kv8s.io/" + name))
		}
	})
})

// text returns the content of a file.
func text(file string) []byte {
	GinkgoHelper()
	return suitetest.Must(os.ReadFile(file))
}

//go:embed testdata/metrics.md.tmpl
var metricsTemplate string

const metricsPage = "deploy/docs/metrics.md"

var _ = It("The page about metrics lists all metrics of the code", func() {
	var page strings.Builder
	Expect(write(&page, sections())).To(Succeed())
	if os.Getenv("UPDATE_METRICS") != "" {
		Expect(os.WriteFile(filepath.Join(root, metricsPage), []byte(page.String()), 0o600)).To(Succeed())
	}
	Expect(page.String()).To(Equal(string(text(filepath.Join(root, metricsPage)))), "run make generate")
})

// section has the metrics of one component.
type section struct {
	Title, Where string
	Metrics      []metric.Definition
}

// sections returns all metrics.
func sections() []section {
	own, pipeline := watcher.Metrics()
	return withCommon([]section{
		{"Watcher", "Port 8081.", append(process.Metrics("watcher"), own...)},
		{"Pipeline", "Port 8081 of the leading watcher, read from NATS every 15 s. While NATS does not respond, " +
			"only `curlmethat_pipeline_up` exists, with value 0.", pipeline},
		{"Fetcher", "Port 8082.", append(process.Metrics("fetcher"), fetcher.Metrics()...)},
		{"Writer", "Port 8083.", append(process.Metrics("writer"), writer.Metrics()...)},
		{"Keeper", "Port 8085.", append(process.MetricsWithoutNATS("keeper"), keeper.Metrics()...)},
		{"Hooks", "Port 8086 of `curlctl hooks`.", curlctl.HookMetrics()},
	})
}

// withCommon moves metrics that several services have to a section of their own, and merges their label
// values.
func withCommon(all []section) []section {
	sections := map[string]int{}
	for _, s := range all {
		for _, d := range s.Metrics {
			sections[d.Name]++
		}
	}
	var common []metric.Definition
	for i := range all {
		all[i].Metrics = slices.DeleteFunc(all[i].Metrics, func(d metric.Definition) bool {
			if sections[d.Name] == 1 {
				return false
			}
			at := slices.IndexFunc(common, func(c metric.Definition) bool { return c.Name == d.Name })
			if at < 0 {
				common = append(common, d)
				return true
			}
			for l := range d.Labels {
				values := slices.Concat(common[at].Labels[l].Values, d.Labels[l].Values)
				slices.Sort(values)
				common[at].Labels[l].Values = slices.Compact(values)
			}
			return true
		})
	}
	return append(all, section{"Common", "Served by each service that has them.", common})
}

// write writes the page. The metrics of each section are sorted by name.
func write(to io.Writer, all []section) error {
	for _, s := range all {
		slices.SortStableFunc(s.Metrics, func(a, b metric.Definition) int { return strings.Compare(a.Name, b.Name) })
	}
	t, err := template.New("page").Funcs(template.FuncMap{"labels": labels, "text": escaped}).Parse(metricsTemplate)
	if err != nil {
		return fmt.Errorf("read the template: %w", err)
	}
	if err := t.Execute(to, all); err != nil {
		return fmt.Errorf("write the page: %w", err)
	}
	return nil
}

// labels describes the labels of a metric, with their values.
func labels(d metric.Definition) string {
	parts := make([]string, len(d.Labels))
	for i, l := range d.Labels {
		values := l.Open
		if values == "" {
			values = "`" + strings.Join(l.Values, "`, `") + "`"
		}
		parts[i] = "`" + l.Name + "`: " + values
	}
	return strings.Join(parts, "<br>")
}

// escaped escapes a text for a Markdown table.
func escaped(s string) string {
	return strings.NewReplacer("<", "&lt;", ">", "&gt;", "|", "\\|").Replace(s)
}
