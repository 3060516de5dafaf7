package replay

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"golang.org/x/time/rate"
)

// RateUsage is the help of a flag for a Rate.
const RateUsage = "rate limit of the fetches, such as 20/s, 600/m or 1000/h (0: no limit)"

// Rate is a flag value in fetches per second (0: no limit).
type Rate float64

// Set implements pflag.Value.
func (r *Rate) Set(text string) error {
	number, unit, found := strings.Cut(text, "/")
	if !found {
		unit = "s"
	}
	seconds := map[string]float64{"s": 1, "m": 60, "h": 3600}[unit]
	n, err := strconv.ParseFloat(number, 64)
	if err != nil || seconds == 0 || n < 0 || math.IsNaN(n) || math.IsInf(n, 0) {
		return fmt.Errorf("%q is not a rate such as 20/s or 600/m", text)
	}
	*r = Rate(n / seconds)
	return nil
}

// String implements pflag.Value.
func (r *Rate) String() string {
	if *r == 0 {
		return "0"
	}
	return strconv.FormatFloat(float64(*r), 'g', -1, 64) + "/s"
}

// Type implements pflag.Value.
func (r *Rate) Type() string { return "rate" }

func (r *Rate) limiter() *rate.Limiter {
	if *r <= 0 {
		return rate.NewLimiter(rate.Inf, 1)
	}
	return rate.NewLimiter(rate.Limit(*r), 1)
}
