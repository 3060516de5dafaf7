package fetcher

import (
	"slices"
	"testing"

	"github.com/spf13/pflag"
)

// The chart passes its settings as arguments, which `kubectl exec` of the command check does not repeat.
func TestCheckHasTheFlagsOfTheRunningFetcherUnlessGiven(t *testing.T) {
	var cfg Config
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	cfg.BindPolicyFlags(fs)
	if err := fs.Parse([]string{"--ca-bundle=/mine"}); err != nil {
		t.Fatal(err)
	}
	args := []string{
		"--nats-url=tls://nats:4222", "--allow-cidr", "10.1.0.0/16", "--allow-cidr=10.2.0.0/16", "--ca-bundle=/theirs",
		"--concurrency=7",
	}
	if err := likeRunning(fs, args); err != nil {
		t.Fatal(err)
	}
	want := []string{"10.1.0.0/16", "10.2.0.0/16"}
	if got := cfg.Egress.AllowCIDRs; !slices.Equal(got, want) || cfg.Get.CABundle != "/mine" {
		t.Errorf("got %v and %s", got, cfg.Get.CABundle)
	}
}
