package console

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/keys"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
	"github.com/kv8s/curl-me-that/proto/annotation/duration"
)

//go:embed templates/*.html
var templateFiles embed.FS

//go:embed assets
var assetFiles embed.FS

// pages are the templates and assets.
type pages struct {
	templates map[string]*template.Template
	// assets maps a name with a hash to its file, and addresses maps a plain name to its address.
	assets, addresses map[string]string
}

const layout = "layout.html"

func newPages() (*pages, error) {
	p := &pages{templates: map[string]*template.Template{}, assets: map[string]string{}, addresses: map[string]string{}}
	if err := p.readAssets(); err != nil {
		return nil, err
	}
	files, err := fs.Glob(templateFiles, "templates/*.html")
	if err != nil {
		return nil, err
	}
	base, err := template.New(layout).Funcs(p.functions()).ParseFS(templateFiles, "templates/"+layout,
		"templates/parts.html")
	if err != nil {
		return nil, fmt.Errorf("parse templates: %w", err)
	}
	for _, file := range files {
		clone, err := base.Clone()
		if err == nil {
			clone, err = clone.ParseFS(templateFiles, file)
		}
		if err != nil {
			return nil, fmt.Errorf("parse %s: %w", file, err)
		}
		p.templates[path.Base(file)] = clone
	}
	return p, nil
}

// readAssets adds a hash to each name, so that browsers can cache the files forever.
func (p *pages) readAssets() error {
	files, err := fs.Glob(assetFiles, "assets/*")
	if err != nil {
		return err
	}
	for _, file := range files {
		data, err := assetFiles.ReadFile(file)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(data)
		ext := path.Ext(file)
		name := strings.TrimSuffix(path.Base(file), ext) + "." + hex.EncodeToString(sum[:6]) + ext
		p.assets[name], p.addresses[path.Base(file)] = file, "/static/"+name
	}
	return nil
}

// static serves an asset.
func (p *pages) static(w http.ResponseWriter, r *http.Request) {
	file, found := p.assets[r.PathValue("file")]
	if !found {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	http.ServeFileFS(w, r, assetFiles, file)
}

// functions returns the functions of the templates.
func (p *pages) functions() template.FuncMap {
	return template.FuncMap{
		"asset":     func(name string) string { return p.addresses[name] },
		"grouped":   grouped,
		"plural":    func(n any, noun string) string { return printer.Plural(integer(n), noun) },
		"ago":       func(now time.Time, at any) stamp { return newStamp(now, at, false) },
		"in":        func(now time.Time, at any) stamp { return newStamp(now, at, true) },
		"clock":     clockOf,
		"oldest":    oldest,
		"reason":    keys.Reason,
		"url":       keys.WithoutQuery,
		"interval":  duration.Format,
		"dict":      dict,
		"hasPrefix": strings.HasPrefix,
	}
}

// dict makes one argument of several, for {{template}}.
func dict(pairs ...any) map[string]any {
	m := map[string]any{}
	for i := 0; i+1 < len(pairs); i += 2 {
		m[fmt.Sprint(pairs[i])] = pairs[i+1]
	}
	return m
}

func integer(n any) int {
	i, _ := strconv.Atoi(fmt.Sprint(n)) // templates pass only integers
	return i
}

func grouped(n any) string { return printer.Grouped(integer(n)) }

// stamp is a time in several formats: relative, absolute, and for programs.
type stamp struct{ Short, Full, Machine string }

func newStamp(now time.Time, at any, ahead bool) stamp {
	var when time.Time
	switch t := at.(type) {
	case time.Time:
		when = t
	case *time.Time:
		when = *t
	case metav1.Time:
		when = t.Time
	case interface{ AsTime() time.Time }:
		when = t.AsTime()
	}
	if when.IsZero() || when.Unix() == 0 {
		return stamp{Short: "–"}
	}
	s := stamp{Full: printer.Clock(when), Machine: when.UTC().Format(time.RFC3339)}
	switch {
	case ahead && !when.After(now):
		s.Short = "now"
	case when.After(now):
		s.Short = "in " + printer.Until(now, when)
	default:
		s.Short = printer.Age(now, when) + " ago"
	}
	return s
}

func clockOf(at time.Time) string { return at.UTC().Format(time.TimeOnly) }

func oldest(c keys.Consumer, now time.Time) string {
	if c.Oldest.IsZero() {
		return "–"
	}
	return printer.Until(c.Oldest, now)
}
