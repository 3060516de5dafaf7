//go:build race

package rule_test

// slower is how many times longer an evaluation may take.
const slower = 5
