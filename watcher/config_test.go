package watcher_test

import (
	"testing"

	"github.com/spf13/pflag"

	"github.com/kv8s/curl-me-that/watcher"
)

func TestConfigRefusesWithOneSentence(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ flag, sentence string }{
		{"--namespaces=Upper", `--namespaces: "Upper" is not the name of a namespace`},
		{"--namespaces=a,,b", `--namespaces: "" is not the name of a namespace`},
		{"--namespaces=kube-system", `--namespaces: "kube-system" is protected; take it out of --protected-namespaces to watch it`},
		{"--protected-namespaces=a b", `--protected-namespaces: "a b" is not the name of a namespace`},
		{"--selector=a in b", `--selector: "a in b" is not a label selector such as reconciler!=ignore`},
		{"--annotation-keys=", `--annotation-keys: invalid annotation settings: name at least one annotation key, such as x-kv8s.io/curl-me-that`},
		{"--annotation-keys=plain", `--annotation-keys: invalid annotation settings: annotation key "plain" has no prefix; write prefix/name`},
		{"--default-scheme=ftp", `--default-scheme: invalid annotation settings: default scheme "ftp" must be http or https`},
		{"--min-refresh=-1s", `--min-refresh: invalid annotation settings: minimum refresh -1s must be between 0 and 8760h0m0s`},
		{"--coalesce=-1s", `--coalesce: a negative duration makes no sense`},
		{"--audit-interval=999ms", `--audit-interval: 999ms is shorter than a second`},
		{"--manage-streams=yes", `--manage-streams: "yes" is not update, create or off`},
		{"--max-removals=-1", `--max-removals: -1 is less than 0`},
		{"--max-removals-percent=101", `--max-removals-percent: 101 is not a share from 0 to 100`},
		{"--namespace-events=-1", `--namespace-events: -1 is negative`},
		{"--namespace-keys=-1", `--namespace-keys: -1 is negative`},
		{"--namespace-refreshes=-1", `--namespace-refreshes: -1 is negative`},
		{"--workers=0", `--workers: 0, at least 1 is needed`},
		{"--signing-key=/dev/null", `--signing-key: read /dev/null: it holds no NKey user seed`},
		{"--stream-replicas=2", `--stream-replicas: 2 must be 0, 1, 3 or 5`},
		{"--max-results-bytes=1000", `--max-results-bytes: 1000 is less than 16 MiB`},
		{"--max-failures-bytes=-1", `--max-failures-bytes: -1 is less than 1 MiB`},
		{"--failures-max-age=1m", `--failures-max-age: 1m0s is shorter than an hour`},
		{"--leader-elect-namespace=UPPER", `--leader-elect-namespace: "UPPER" is not the name of a namespace`},
		{"--leader-elect-name=a_b", `--leader-elect-name: "a_b" is not the name of a Lease`},
		{"--leader-elect-lease-duration=999ms", `--leader-elect-lease-duration: 999ms is shorter than a second`},
		{"--leader-elect-lease-duration=10s", `--leader-elect-lease-duration must be longer than --leader-elect-renew-deadline, and that at least 1.2 times --leader-elect-retry-period`},
		{"--leader-elect-retry-period=9s", `--leader-elect-lease-duration must be longer than --leader-elect-renew-deadline, and that at least 1.2 times --leader-elect-retry-period`},
	} {
		config := parse(t, "--leader-elect", c.flag)
		if err := config.Validate(); err == nil || err.Error() != c.sentence {
			t.Errorf("%s: got %v, want %q", c.flag, err, c.sentence)
		}
	}
}

func TestConfigAccepts(t *testing.T) {
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
		if err := config.Validate(); err != nil {
			t.Errorf("%v: %v", flags, err)
		}
	}
}

// parse returns the configuration that flags make.
func parse(t *testing.T, flags ...string) watcher.Config {
	t.Helper()
	var c watcher.Config
	set := pflag.NewFlagSet("watcher", pflag.ContinueOnError)
	c.BindFlags(set)
	if err := set.Parse(flags); err != nil {
		t.Fatal(err)
	}
	return c
}
