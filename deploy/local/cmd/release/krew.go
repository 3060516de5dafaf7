package main

import (
	"strings"

	"sigs.k8s.io/yaml"
)

// pluginArchive is the kubectl plugin for one platform.
type pluginArchive struct {
	name, goos, goarch string
}

// manifest of a plugin, as krew reads it.
type manifest struct {
	APIVersion string         `json:"apiVersion"`
	Kind       string         `json:"kind"`
	Metadata   manifestName   `json:"metadata"`
	Spec       manifestPlugin `json:"spec"`
}

type manifestName struct {
	Name string `json:"name"`
}

type manifestPlugin struct {
	Version          string             `json:"version"`
	Homepage         string             `json:"homepage"`
	ShortDescription string             `json:"shortDescription"`
	Description      string             `json:"description"`
	Platforms        []manifestPlatform `json:"platforms"`
}

type manifestPlatform struct {
	Selector struct {
		MatchLabels map[string]string `json:"matchLabels"`
	} `json:"selector"`
	URI    string `json:"uri"`
	SHA256 string `json:"sha256"`
	Bin    string `json:"bin"`
}

// makeKrew writes the manifest for `kubectl krew install`.
func (r *release) makeKrew(archives []pluginArchive) error {
	m := manifest{
		APIVersion: "krew.googlecontainertools.github.com/v1alpha2",
		Kind:       "Plugin",
		Metadata:   manifestName{Name: strings.ReplaceAll(strings.TrimPrefix(plugin, "kubectl-"), "_", "-")},
		Spec: manifestPlugin{
			Version: r.version, Homepage: "https://" + repository,
			ShortDescription: "Operate curl-me-that",
			Description:      "Lists what curl-me-that does and what has failed, and replays that. It uses NATS;\nits flags, or CURLMETHAT_NATS_*, are where that is.\n",
		},
	}
	for _, a := range archives {
		sum, err := r.checksum(a.name)
		if err != nil {
			return err
		}
		p := manifestPlatform{URI: "https://" + repository + "/releases/download/" + r.version + "/" + a.name, SHA256: sum, Bin: plugin}
		p.Selector.MatchLabels = map[string]string{"os": a.goos, "arch": a.goarch}
		m.Spec.Platforms = append(m.Spec.Platforms, p)
	}
	text, err := yaml.Marshal(m)
	if err != nil {
		return err
	}
	return r.write(m.Metadata.Name+".krew.yaml", text)
}
