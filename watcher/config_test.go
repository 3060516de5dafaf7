package watcher_test

import (
	"testing"

	. "github.com/onsi/gomega"
	"github.com/spf13/pflag"

	"github.com/kv8s/curl-me-that/watcher"
)

func TestInvalidConfig(t *testing.T) {
	t.Parallel()
	const durations = "--leader-elect-lease-duration must be longer than --leader-elect-renew-deadline, " +
		"and that at least 1.2 times --leader-elect-retry-period"
	check := func(flag, sentence string) {
		t.Helper()
		config := parse(t, "--leader-elect", flag)
		NewWithT(t).Expect(config.Validate()).To(MatchError(sentence), flag)
	}
	check("--namespaces=Upper", `--namespaces: "Upper" is not the name of a namespace`)
	check("--namespaces=a,,b", `--namespaces: "" is not the name of a namespace`)
	check("--namespaces=kube-system",
		`--namespaces: "kube-system" is protected. To watch it, remove it from --protected-namespaces`)
	check("--protected-namespaces=a b", `--protected-namespaces: "a b" is not the name of a namespace`)
	check("--selector=a in b", `--selector: "a in b" is not a label selector such as reconciler!=ignore`)
	check("--annotation-keys=",
		`--annotation-keys: name at least one, such as x-kv8s.io/curl-me-that`)
	check("--annotation-keys=plain",
		`--annotation-keys: "plain" has no prefix; write prefix/name`)
	check("--default-scheme=ftp",
		`--default-scheme: "ftp" is neither http nor https`)
	check("--min-refresh=-1s",
		`--min-refresh: -1s is not between 0 and 8760h0m0s`)
	check("--coalesce=-1s", `--coalesce must be zero or more`)
	check("--audit-interval=999ms", `--audit-interval must be at least 1s`)
	check("--manage-streams=yes", `--manage-streams must be update, create or off`)
	check("--max-removals=-1", `--max-removals must be zero or more`)
	check("--max-removals-percent=101", `--max-removals-percent must be from 0 to 100`)
	check("--namespace-events=-1", `--namespace-events must be zero or more`)
	check("--namespace-keys=-1", `--namespace-keys must be zero or more`)
	check("--namespace-refreshes=-1", `--namespace-refreshes must be zero or more`)
	check("--workers=0", `--workers must be positive`)
	check("--signing-key=/dev/null", `--signing-key: read /dev/null: it holds no NKey user seed`)
	check("--stream-replicas=2", `--stream-replicas: 2 must be 0, 1, 3 or 5`)
	check("--max-results-bytes=1000", `--max-results-bytes: 1000 is less than 16 MiB`)
	check("--max-failures-bytes=-1", `--max-failures-bytes: -1 is less than 1 MiB`)
	check("--failures-max-age=1m", `--failures-max-age: 1m0s is shorter than an hour`)
	check("--leader-elect-namespace=UPPER", `--leader-elect-namespace: "UPPER" is not the name of a namespace`)
	check("--leader-elect-name=a_b", `--leader-elect-name: "a_b" is not the name of a Lease`)
	check("--leader-elect-lease-duration=999ms", `--leader-elect-lease-duration: 999ms is shorter than a second`)
	check("--leader-elect-lease-duration=10s", durations)
	check("--leader-elect-retry-period=9s", durations)
}

func TestValidConfig(t *testing.T) {
	t.Parallel()
	for _, flags := range [][]string{
		{},
		{"--namespaces=a,b", "--selector="},
		{"--namespaces=kube-system", "--protected-namespaces="},
		{"--annotation-keys=example.com/fetch", "--default-scheme=http", "--min-refresh=0"},
		{"--coalesce=0", "--audit-interval=1s", "--workers=1"},
		{"--leader-elect-lease-duration=1ms"}, // no election, no Lease
	} {
		config := parse(t, flags...)
		NewWithT(t).Expect(config.Validate()).To(Succeed(), "%v", flags)
	}
}

// parse returns the configuration for flags.
func parse(t *testing.T, flags ...string) watcher.Config {
	t.Helper()
	var c watcher.Config
	set := pflag.NewFlagSet("watcher", pflag.ContinueOnError)
	c.BindFlags(set)
	NewWithT(t).Expect(set.Parse(flags)).To(Succeed())
	return c
}
