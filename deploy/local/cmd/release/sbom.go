package main

import (
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"runtime/debug"
	"slices"
)

// bom is a bill of materials after CycloneDX 1.5, as far as it is used here.
type bom struct {
	Format     string      `json:"bomFormat"`
	Spec       string      `json:"specVersion"`
	Version    int         `json:"version"`
	Metadata   metadata    `json:"metadata"`
	Components []component `json:"components"`
}

type metadata struct {
	Timestamp string    `json:"timestamp"`
	Component component `json:"component"`
}

type component struct {
	Type       string      `json:"type"`
	Ref        string      `json:"bom-ref,omitempty"`
	Name       string      `json:"name"`
	Version    string      `json:"version,omitempty"`
	PURL       string      `json:"purl,omitempty"`
	Components []component `json:"components,omitempty"`
}

// makeSBOM lists of which modules the programs in bin are made, by what the Go linker
// has put into them: nothing can be linked and missing there.
func (r *release) makeSBOM(name, bin string) error {
	libraries := map[string]component{}
	var parts []component
	for _, program := range programs() {
		of := filepath.Base(program)
		info, err := buildinfo.ReadFile(filepath.Join(bin, of))
		if err != nil {
			return fmt.Errorf("read what %s is made of: %w", of, err)
		}
		parts = append(parts, component{Type: "application", Ref: of, Name: of, Version: r.version})
		standard := library(&debug.Module{Path: "std", Version: info.GoVersion})
		libraries[standard.PURL] = standard
		for _, module := range info.Deps {
			if module.Replace != nil {
				continue // a module of ours
			}
			one := library(module)
			libraries[one.PURL] = one
		}
	}
	all := bom{
		Format: "CycloneDX", Spec: "1.5", Version: 1,
		Metadata: metadata{
			Timestamp: r.time.Format("2006-01-02T15:04:05Z"),
			Component: component{
				Type: "application", Ref: repository, Name: repository, Version: r.version,
				PURL: "pkg:golang/" + repository + "@" + r.version, Components: parts,
			},
		},
	}
	for _, purl := range slices.Sorted(maps.Keys(libraries)) {
		all.Components = append(all.Components, libraries[purl])
	}
	text, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return err
	}
	return r.write(name, append(text, '\n'))
}

func library(module *debug.Module) component {
	purl := "pkg:golang/" + module.Path + "@" + module.Version
	return component{Type: "library", Ref: purl, Name: module.Path, Version: module.Version, PURL: purl}
}
