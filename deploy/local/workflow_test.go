package local_test

import (
	_ "embed"
	"path/filepath"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"
)

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
