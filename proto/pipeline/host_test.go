package pipeline_test

import (
	"strings"
	"testing"

	"github.com/kv8s/curl-me-that/proto/pipeline"
)

func TestHostOfHasOneNameForEveryAddress(t *testing.T) {
	for url, want := range map[string]string{
		"https://Data.Example.com:8080/x?q":                 "data.example.com",
		"http://127.0.0.1:18080/x":                          pipeline.HiddenHost,
		"https://[2001:db8::1]/":                            pipeline.HiddenHost,
		"https://[fe80::1%25eth0]:443/":                     pipeline.HiddenHost,
		"https://[::ffff:10.0.0.1]/":                        pipeline.HiddenHost,
		"https://10.0.0.1.example.com/":                     "10.0.0.1.example.com",
		"https://" + strings.Repeat("a", 300) + ".example/": strings.Repeat("a", 253),
		"https:///x": "",
		"://":        "",
	} {
		if got := pipeline.HostOf(url); got != want {
			t.Errorf("HostOf(%q) = %q, want %q", url, got, want)
		}
	}
}
