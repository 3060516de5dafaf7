package bench

import (
	"strings"
	"testing"
)

// A machine that is half as fast in one round changes no price in units of others.
func TestPricesAreInUnitsOfWhatOtherProgramsTake(t *testing.T) {
	prices := Prices{N: 1, Forms: map[string][]Price{
		"none":       {{CPU: map[string]float64{"watcher": 0.2, "writer": 0.2, "kube-apiserver": 1}, PerSecond: 1}},
		"signatures": {{CPU: map[string]float64{"watcher": 0.44, "writer": 0.4, "kube-apiserver": 2}, PerSecond: 1}},
	}}
	var table strings.Builder
	if err := prices.WriteTable(&table); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"+31.4 % (+31.4 to +31.4) by watcher, writer", "+1.4 % (+1.4 to +1.4) in units of what the other programs take"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("there is no %q in\n%s", want, table.String())
		}
	}
}
