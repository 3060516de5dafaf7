package keys_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/keys"
	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/keystate"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// One key that has failed for a year does not hide when its host went down.
func TestAGroupSaysForWhomAndWhenMostOfItBegan(t *testing.T) {
	down := time.Date(2026, 11, 29, 3, 26, 0, 0, time.UTC)
	var all []keys.Key
	for i, namespace := range []string{"shop", "shop", "shop", "a", "a", "b", "c", "d"} {
		since := down.Add(time.Duration(i) * time.Second)
		if i == 0 {
			since = down.AddDate(-1, 0, 0)
		}
		all = append(all, keys.Key{
			Key: pipeline.Key{Namespace: namespace}, Host: "example.com",
			Condition: keystate.Condition{State: keystate.Failing, Reason: "Timeout", Since: since},
		})
	}
	all = append(all, keys.Key{Condition: keystate.Condition{State: keystate.OK}})
	groups := keys.Groups(all)
	if len(groups) != 1 || groups[0].Count != 8 || groups[0].Since.Sub(down).Abs() > time.Minute {
		t.Fatalf("%+v", groups)
	}
	if got := groups[0].Namespaces.String(); got != "shop 3, a 2, b 1, 2 more" {
		t.Error(got)
	}
	if got := keys.Count(all).String(); got != "8 of 9 keys failing" {
		t.Error(got)
	}
}

// The watcher leaves such a key alone, too.
func TestAKeyOfAnotherInstallationIsRefused(t *testing.T) {
	object := keys.ReadObject(&metav1.ObjectMeta{Annotations: map[string]string{
		annotation.DefaultKey: "k=example.com", "example.org/curl-me-that": "k=example.com",
		annotation.StatusKey: `{"k":{"url":"https://example.com","annotation":"example.org/curl-me-that"}}`,
	}}, nil)
	got := object.Condition(object.Request.Pairs[0], time.Now())
	if got.State != keystate.Refused || !strings.Contains(got.Message, "example.org/curl-me-that") {
		t.Errorf("%+v", got)
	}
}

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

func TestInterruptedReplayFails(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	err := keys.Replay(ctx, nil, []*keys.Item{{ID: 1, Verdict: keys.Wanted}}, 0, nil)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
}
