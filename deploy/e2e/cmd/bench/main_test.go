package main

import (
	"bytes"
	"encoding/json"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/fanout"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/isolation"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/overdue"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/parking"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/peers"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/refresh"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/remembered"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/tools"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/watchers"
)

// empty figures of each mode, as a run returns them.
var empty = map[string]figures{
	"pipeline": &bench.Report{}, "prices": &bench.Prices{}, "scale": bench.Scale{}, "isolation": isolation.Rows{{}},
	"parking": parking.Rows{{}}, "refresh": refresh.Report{}, "fanout": fanout.Rows{{}}, "tools": tools.Rows{{}}, "peers": peers.Rows{{}},
	"watchers": watchers.Report{}, "beside": &bench.Beside{}, "remembered": remembered.Report{}, "overdue": overdue.Report{},
}

func TestModesAreNamedOnceAndChosenByTheirFlags(t *testing.T) {
	var names []string
	for _, m := range modes(bench.Config{}) {
		names = append(names, m.name)
		if _, known := empty[m.name]; !known || m.wanted {
			t.Errorf("%s: its figures are tested: %t; wanted without a flag: %t", m.name, known, m.wanted)
		}
	}
	if len(names) != len(empty) || len(slices.Compact(slices.Sorted(slices.Values(names)))) != len(names) {
		t.Errorf("got %q, want each of %d once", names, len(empty))
	}
	for want, c := range map[string]bench.Config{
		"pipeline": {}, "prices": {Prices: true, Apart: true}, "pipeline refresh tools": {Apart: true, Refresh: 1, Tools: 1},
	} {
		var got []string
		for _, m := range chosen(c) {
			got = append(got, m.name)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestARunWritesOneDocumentThatNamesItsModes(t *testing.T) {
	var documents []document
	for _, m := range modes(bench.Config{}) {
		documents = append(documents, document{m.name, empty[m.name]})
	}
	documents = append(documents, document{"refresh", refresh.Report{Keys: 7, CPU: map[string]float64{"fetcher": 0.5}, Ratio: 3}})
	var text bytes.Buffer
	if err := write(documents, &text); err != nil {
		t.Fatal(err)
	}
	var read []struct {
		Mode    string          `json:"mode"`
		Figures json.RawMessage `json:"figures"`
	}
	if err := json.Unmarshal(text.Bytes(), &read); err != nil { // which refuses a second document
		t.Fatal(err)
	}
	for i, d := range documents {
		into := reflect.New(reflect.TypeOf(d.Figures))
		if read[i].Mode != d.Mode {
			t.Errorf("%d is %q, want %q", i, read[i].Mode, d.Mode)
		}
		if err := json.Unmarshal(read[i].Figures, into.Interface()); err != nil || !reflect.DeepEqual(into.Elem().Interface(), d.Figures) {
			t.Errorf("%s: got %+v, %v, want %+v", d.Mode, into.Elem().Interface(), err, d.Figures)
		}
	}
}

// unit is in the name of a figure, or in that of what holds it. Goals have theirs in
// the sentence beside it.
var unit = regexp.MustCompile(`Milliseconds|[sS]econds|[pP]erSecond|Bytes|KiB|[rR]atio|\.\w+Per[A-Z]|^pipeline\.goals\.`)

func TestNamesOfFiguresHaveUnits(t *testing.T) {
	for mode, f := range empty {
		verifyUnits(t, mode, reflect.TypeOf(f))
	}
}

func verifyUnits(t *testing.T, path string, of reflect.Type) {
	t.Helper()
	if kind := of.Kind(); kind == reflect.Pointer || kind == reflect.Slice || kind == reflect.Map {
		verifyUnits(t, path, of.Elem())
		return
	}
	if of.Kind() == reflect.Float64 && !unit.MatchString(path) {
		t.Errorf("%s has no unit", path)
	}
	if of.Kind() != reflect.Struct || of == reflect.TypeFor[time.Time]() {
		return
	}
	for field := range of.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "-" {
			continue
		}
		if name == "" || field.Type == reflect.TypeFor[time.Duration]() {
			t.Errorf("%s.%s is a %s with the JSON name %q", path, field.Name, field.Type, name)
		}
		verifyUnits(t, path+"."+name, field.Type)
	}
}
