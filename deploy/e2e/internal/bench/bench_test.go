package bench

import (
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"
)

// unit matches the unit in the name of a figure or of a group of figures.
var unit = regexp.MustCompile(`[sS]econds|[pP]erSecond|Bytes|[rR]atio|\w+Per[A-Z]`)

func TestNamesOfFiguresHaveUnits(t *testing.T) {
	for _, figures := range []any{
		filled{Ratios: []float64{1}, Median: round{CPU: map[string]float64{"nats": 1}}, Memory: usages{"nats": {}}},
		refresh{CPU: map[string]float64{"nats": 1}},
		slowHost{Cores: map[string]float64{"nats": 1}},
		restart{},
	} {
		for _, c := range flatten("", reflect.ValueOf(figures)) {
			if strings.HasPrefix(c.name, ".") || strings.HasSuffix(c.name, ".") {
				t.Errorf("%T has a figure without a JSON name: %q", figures, c.name)
			}
		}
		for field, value := range reflect.ValueOf(figures).Fields() {
			if name := field.Tag.Get("json"); value.Kind() == reflect.Float64 && !unit.MatchString(name) {
				t.Errorf("%T: %s has no unit", figures, name)
			}
		}
	}
}

func TestTablesHaveARowOrAColumnForEachMeasurement(t *testing.T) {
	few, many := strings.Builder{}, strings.Builder{}
	one := restart{What: "nats", Seconds: 1.5}
	if err := WriteTable(&few, one); err != nil {
		t.Fatal(err)
	}
	if err := WriteTable(&many, []restart{one, one, one, one, one}); err != nil {
		t.Fatal(err)
	}
	if got, want := few.String(),
		"| what | nats |\n|---|---|\n| configMaps | 0 |\n| seconds | 1.5 |\n| allWantsSeconds | 0 |\n"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := strings.Count(many.String(), "| nats | 0 | 1.5 | 0 |\n"); got != 5 {
		t.Errorf("got %d rows, want 5: %s", got, many.String())
	}
}

func TestOptionsNameTheFlagThatIsWrong(t *testing.T) {
	o := Options{N: 2, Rounds: 1, Timeout: time.Second, Bin: t.TempDir()}
	if err := o.Complete(); err == nil || !strings.Contains(err.Error(), "run make build first") {
		t.Errorf("got %v", err)
	}
	if _, err := parse("latencies", "1s,-1s", time.ParseDuration); err == nil ||
		!strings.Contains(err.Error(), "-latencies") {
		t.Errorf("got %v", err)
	}
}
