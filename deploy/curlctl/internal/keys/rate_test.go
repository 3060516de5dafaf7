package keys_test

import (
	"testing"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/keys"
)

func TestRate(t *testing.T) {
	for text, want := range map[string]string{
		"20": "20/s", "20/s": "20/s", "600/m": "10/s", "1800/h": "0.5/s", "0": "0", "0/m": "0", "0.5": "0.5/s",
	} {
		var r keys.Rate
		if err := r.Set(text); err != nil || r.String() != want {
			t.Errorf("%q is %s, %v, want %s", text, r.String(), err, want)
		}
	}
	for _, text := range []string{"", "/s", "x", "-1", "NaN", "Inf", "1e999", "20/d", "20/", "20/s/s", "20 /s"} {
		r := keys.Rate(7)
		if err := r.Set(text); err == nil || r != 7 {
			t.Errorf("%q is %s, %v", text, r.String(), err)
		}
	}
}
