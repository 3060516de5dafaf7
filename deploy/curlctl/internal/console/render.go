package console

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html/template"
	"io"
	"io/fs"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/console/model"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/deadletter"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
	"github.com/kv8s/curl-me-that/proto/annotation/duration"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

//go:embed templates/*.html
var templateFiles embed.FS

//go:embed assets
var assetFiles embed.FS

// pages are the templates and assets.
type pages struct {
	templates map[string]*template.Template
	// assets by names with their hash, which names has by plain names.
	assets map[string]asset
	names  map[string]string
	// buffers hold pages while they are rendered.
	buffers sync.Pool
}

type asset struct {
	kind string
	data []byte
}

const layout = "layout.html"

func newPages() (*pages, error) {
	p := &pages{templates: map[string]*template.Template{}, assets: map[string]asset{}, names: map[string]string{}}
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

// readAssets puts the hash into each name, so that browsers may cache the files forever.
func (p *pages) readAssets() error {
	kinds := map[string]string{
		".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
	}
	return fs.WalkDir(assetFiles, "assets", func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := assetFiles.ReadFile(file)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(data)
		ext := path.Ext(file)
		name := strings.TrimSuffix(path.Base(file), ext) + "." + hex.EncodeToString(sum[:6]) + ext
		p.assets[name], p.names[path.Base(file)] = asset{kinds[ext], data}, "/static/"+name
		return nil
	})
}

// static serves an asset.
func (p *pages) static(w http.ResponseWriter, r *http.Request) {
	a, there := p.assets[r.PathValue("file")]
	if !there {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", a.kind)
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	_, _ = w.Write(a.data)
}

func (p *pages) render(w io.Writer, name string, f frame) error {
	return p.templates[name].ExecuteTemplate(w, layout, f)
}

// functions of the templates.
func (p *pages) functions() template.FuncMap {
	return template.FuncMap{
		"asset":     func(name string) string { return p.names[name] },
		"grouped":   grouped,
		"plural":    func(n any, noun string) string { return printer.Plural(integer(n), noun) },
		"ago":       func(now time.Time, at any) stamp { return newStamp(now, at, false) },
		"in":        func(now time.Time, at any) stamp { return newStamp(now, at, true) },
		"clock":     clockOf,
		"oldest":    oldest,
		"reason":    deadletter.Reason,
		"url":       deadletter.WithoutQuery,
		"cause":     pipeline.CauseName,
		"newest":    newest,
		"interval":  duration.Format,
		"sparks":    sparks,
		"apart":     apart,
		"dict":      dict,
		"add":       func(a, b int) int { return a + b },
		"sub":       func(a, b int) int { return a - b },
		"text":      func(v any) string { return fmt.Sprint(v) },
		"hasPrefix": strings.HasPrefix,
	}
}

// dict passes several values to a part.
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

// stamp is a relative time, with the absolute one.
type stamp struct{ Short, Full, Machine string }

func newStamp(now time.Time, at any, ahead bool) stamp {
	var when time.Time
	switch t := at.(type) {
	case time.Time:
		when = t
	case *time.Time:
		if t != nil {
			when = *t
		}
	case metav1.Time:
		when = t.Time
	case *metav1.Time:
		if t != nil {
			when = t.Time
		}
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

// apart describes how far one clock is ahead of another.
func apart(ahead time.Duration) string {
	now := time.Unix(0, 0)
	if ahead < 0 {
		return printer.Until(now, now.Add(-ahead)) + " behind"
	}
	return printer.Until(now, now.Add(ahead)) + " ahead of"
}

// Size of a sparkline, in units of its SVG.
const (
	sparkWidth  = 120
	sparkHeight = 24
)

// line is a sparkline with its scale: the values of a span of time until now.
type line struct {
	Points string
	Peak   int
	Span   string
}

func spark(values []int, span time.Duration) line {
	peak := slices.Max(values)
	most := max(1, peak)
	var b strings.Builder
	for i, n := range values {
		fmt.Fprintf(&b, "%d,%d ", i*sparkWidth/max(1, len(values)-1), sparkHeight-1-n*(sparkHeight-2)/most)
	}
	return line{strings.TrimSpace(b.String()), peak, duration.Format(span)}
}

// sparks returns the sparklines of the overview.
func sparks(n model.Numbers) map[string]line {
	return map[string]line{
		"requests": sampled(n, func(s model.Sample) uint64 { return s.Requests }),
		"results":  sampled(n, func(s model.Sample) uint64 { return s.Results }),
		"failures": failuresSpark(n),
	}
}

func sampled(n model.Numbers, of func(model.Sample) uint64) line {
	values := make([]int, model.SampleCount)
	for i, s := range n.Samples {
		values[len(values)-len(n.Samples)+i] = int(of(s))
	}
	return spark(values, model.SampleCount*model.PollEvery)
}

// failuresSpark has a point per two minutes.
func failuresSpark(n model.Numbers) line {
	values := make([]int, len(n.Minutes)/2)
	for i, count := range n.Minutes {
		values[i/2] += count
	}
	return spark(values, time.Hour)
}

// visible replaces invisible characters, and characters that change the direction of text, by their
// numbers: tenants and servers must not hide text.
func visible(page []byte) []byte {
	if !bytes.ContainsFunc(page, func(r rune) bool { return !seen(r) }) {
		return page
	}
	var b bytes.Buffer
	for i := 0; i < len(page); {
		r, size := utf8.DecodeRune(page[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			b.WriteRune(utf8.RuneError)
		case seen(r):
			b.WriteRune(r)
		default:
			fmt.Fprintf(&b, "\\u%04x", r)
		}
		i += size
	}
	return b.Bytes()
}

func seen(r rune) bool {
	return r == '\n' || r == '\t' || r != utf8.RuneError && unicode.IsPrint(r)
}
