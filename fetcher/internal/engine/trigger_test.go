package engine

import (
	"testing"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
)

func TestSpellingsOfAHostShareItsSlots(t *testing.T) {
	for _, spellings := range [][]string{
		{"http://data.example.com/a", "HTTP://DATA.example.com.:80/b", "http://data.example.com.?c"},
		{"https://[::1]/", "https://[0:0:0:0:0:0:0:1]:443/"},
		{"http://192.0.2.1:8080/", "http://[::ffff:192.0.2.1]:8080/", "http://[::ffff:c000:201]:8080/"},
	} {
		for _, s := range spellings {
			if got, want := authority(s), authority(spellings[0]); got != want || got == "" {
				t.Errorf("authority(%q) = %q, want %q", s, got, want)
			}
		}
	}
	for _, denied := range []string{"", "ftp://a.example.com/", "http://me@a.example.com/", "http://a b/"} {
		if got := authority(denied); got != "" {
			t.Errorf("authority(%q) = %q", denied, got)
		}
	}
}

func TestAPersonIsServedFirst(t *testing.T) {
	const now, parked = v1.Cause_CAUSE_NOW, v1.Cause_CAUSE_PARKED
	for name, c := range map[string]struct {
		cause, want v1.Cause
		due         *v1.Due
		urgent      bool
	}{
		"curl-now":                    {now, now, nil, true},
		"curlctl refetch":             {now, v1.Cause_CAUSE_NEW, nil, true},
		"a replay":                    {v1.Cause_CAUSE_REPLAY, v1.Cause_CAUSE_NEW, nil, true},
		"curl-now that was parked":    {parked, now, nil, true},
		"a replay that was parked":    {parked, v1.Cause_CAUSE_NEW, &v1.Due{ReplayOf: 7}, true},
		"its retry":                   {v1.Cause_CAUSE_RETRY, now, &v1.Due{Attempts: 1}, false},
		"its refresh that was parked": {parked, now, &v1.Due{Cached: &v1.Cached{}}, false},
		"a new want":                  {v1.Cause_CAUSE_NEW, v1.Cause_CAUSE_NEW, nil, false},
		"curl-now, after an attempt":  {now, now, &v1.Due{Attempts: 1}, false},
	} {
		m := &trigger{cause: c.cause, want: &v1.Want{Cause: c.want}, due: c.due}
		if got := m.urgent(); got != c.urgent {
			t.Errorf("%s: urgent is %t", name, got)
		}
	}
}
