//go:build !race

package rule_test

// slower is the factor by which an evaluation may take longer.
const slower = 1
