package bench

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

func TestCounts(t *testing.T) {
	for text, want := range map[string][]int{"2000,10000": {2000, 10000}, "7": {7}, "": nil, "2000,": nil, "1": nil, "many": nil} {
		c := Config{Scale: text}
		if got, err := c.counts(); !slices.Equal(got, want) || (err == nil) != (want != nil) {
			t.Errorf("%q: got %v, %v, want %v", text, got, err, want)
		}
	}
	short := Config{Scale: "2000,10", Short: true}
	if got, err := short.counts(); err != nil || !slices.Equal(got, []int{40, 2}) {
		t.Errorf("got %v, %v, want a fiftieth, and 2 at least", got, err)
	}
}

func TestScaleTableHasTheGrowth(t *testing.T) {
	size := func(n int, writer float64) Size {
		return Size{N: n, Round: costly(0.5, writer, 1), Allocated: map[string]float64{"writer": 30}}
	}
	var table bytes.Buffer
	if err := (Scale{Sizes: []Size{size(2000, 0.5), size(10000, 0.4), size(50000, 0.6)}}).WriteTable(&table); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| ConfigMaps | 2000 | 10000 | 50000 | last ÷ first |\n|---|---|---|---|---|\n",
		"| CPU of writer for each, ms | 0.500 | 0.400 | 0.600 | 1.20 |\n",
		"| allocated by writer for each, KiB | 30.0 | 30.0 | 30.0 | 1.00 |\n",
	} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("got\n%s\nwant %q in it", table.String(), want)
		}
	}
}
