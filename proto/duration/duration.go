// Package duration parses and formats durations in annotations and flags.
package duration

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// day is always 24 hours, also when the clocks change.
const day = 24 * time.Hour

// Parse accepts Go durations with optional leading days: 10m, 1h30m, 2d, 1d12h.
func Parse(text string) (time.Duration, error) {
	days, rest, found := strings.Cut(text, "d")
	if !found {
		d, err := time.ParseDuration(text)
		if err != nil {
			return 0, invalid(text)
		}
		return d, nil
	}
	n, err := strconv.ParseFloat(days, 64)
	if err != nil || strings.ContainsAny(days, "eExXiInN_+") || math.Abs(n) > float64(math.MaxInt64/day) {
		return 0, invalid(text)
	}
	whole := time.Duration(n * float64(day))
	if rest == "" {
		return whole, nil
	}
	part, err := time.ParseDuration(rest)
	if err != nil || part < 0 || strings.ContainsAny(rest[:1], "+-") || whole < 0 || whole > math.MaxInt64-part {
		return 0, invalid(text)
	}
	return whole + part, nil
}

func invalid(text string) error {
	return fmt.Errorf("%q is not a duration such as 10m, 1h30m or 2d", text)
}

// Format returns d in the syntax of Parse, without units that are zero: 10m, 1h30m, 2d, 1d12h.
func Format(d time.Duration) string {
	if d < 0 {
		return "-" + Format(-d)
	}
	text := ""
	if days := d / day; days > 0 {
		text, d = strconv.FormatInt(int64(days), 10)+"d", d%day
		if d == 0 {
			return text
		}
	}
	rest := d.String()
	if strings.HasSuffix(rest, "m0s") {
		rest = strings.TrimSuffix(rest, "0s")
	}
	if strings.HasSuffix(rest, "h0m") {
		rest = strings.TrimSuffix(rest, "0m")
	}
	return text + rest
}

// Var adds a flag that is parsed by Parse; value is its default.
func Var(fs *pflag.FlagSet, d *time.Duration, name string, value time.Duration, usage string) {
	*d = value
	fs.Var((*Flag)(d), name, usage)
}

// Flag is the value of a flag that is parsed by Parse.
type Flag time.Duration

// Set implements pflag.Value.
func (f *Flag) Set(text string) error {
	parsed, err := Parse(text)
	if err == nil {
		*f = Flag(parsed)
	}
	return err
}

// String implements pflag.Value.
func (f *Flag) String() string { return Format(time.Duration(*f)) }

// Type implements pflag.Value.
func (f *Flag) Type() string { return "duration" }
