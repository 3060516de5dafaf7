package annotation_test

import (
	"strings"
	"testing"

	"github.com/kv8s/curl-me-that/proto/annotation"
)

const digest = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// with returns annotations that request keys a and b, with one option.
func with(name, value string) map[string]string {
	return map[string]string{annotation.DefaultKey: "a=a.example.com b=b.example.com", "x-kv8s.io/" + name: value}
}

func TestSuspend(t *testing.T) {
	for value, want := range map[string]bool{"": false, "true": true, "false": false, " True\n": true, "1": true} {
		request, err := grammar(t).Parse(with(annotation.SuspendName, value))
		if err != nil || request.Suspended != want {
			t.Errorf("%q: got %v, %v, want %v", value, request.Suspended, err, want)
		}
	}
	request, err := grammar(t).Parse(map[string]string{
		annotation.DefaultKey:    "not correct",
		"x-kv8s.io/curl-suspend": "true",
	})
	if err == nil || !request.Suspended {
		t.Errorf("a suspended object with a bad value: %+v, %v", request, err)
	}
}

func TestNow(t *testing.T) {
	now := func(value string) string {
		request, err := grammar(t).Parse(with(annotation.NowName, value))
		if err != nil {
			t.Fatal(err)
		}
		return request.Now
	}
	if got := now("2026-01-02 anything?"); got != "2026-01-02 anything?" {
		t.Errorf("got %q", got)
	}
	long := strings.Repeat("n", annotation.MaxNowBytes+1)
	if got := now(long[1:]); got != long[1:] {
		t.Errorf("the longest value: %q", got)
	}
	if a, b := now(long), now(long+"n"); a == b || len(a) > annotation.MaxNowBytes {
		t.Errorf("long values: %q and %q", a, b)
	}
	if got := now("\xff"); !strings.HasPrefix(got, "sha256:") {
		t.Errorf("invalid UTF-8 is passed on: %q", got)
	}
}

func TestSHA256(t *testing.T) {
	request, err := grammar(t).Parse(with(annotation.SHA256Name, "b="+strings.ToUpper(digest)))
	if err != nil || len(request.SHA256) != 1 || request.SHA256["b"] != digest {
		t.Errorf("got %v, %v", request.SHA256, err)
	}
}

func TestAPinIsNotAddedToTooManyAndDropsNone(t *testing.T) {
	value := strings.Repeat("k=00 ", annotation.MaxPairs+1)
	if got, err := annotation.WithPin(value, "key", "11"); err == nil {
		t.Errorf("got %q", got)
	}
	if got, err := annotation.WithPin("a=00 key=22", "key", "11"); got != "a=00 key=11" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestADigestOfARejectedPairDoesNotAffectOthers(t *testing.T) {
	annotations := with(annotation.SHA256Name, "b="+digest)
	annotations[annotation.DefaultKey] = "a=a.example.com b=ftp://b.example.com"
	request, err := grammar(t).Parse(annotations)
	if err != nil || len(request.Pairs) != 1 || !request.Rejects() {
		t.Errorf("got %+v, %v", request, err)
	}
}

func TestOptionRefused(t *testing.T) {
	const (
		refresh, sha256 = annotation.RefreshName, annotation.SHA256Name
		notDuration     = "is not a duration such as 10m"
		notDigests      = "does not match expected format key=<64 hexadecimal digits>"
	)
	tooLong := strings.Repeat("x", annotation.MaxValueBytes+1)
	for _, c := range []struct{ name, value, wrong string }{
		{refresh, "1h [a=5min] b=10m", notDuration},
		{refresh, "10m [1h]", "is a second interval for the same key"},
		{refresh, "a=1m [a=2m]", "is a second interval for the same key"},
		{sha256, "b=" + digest + " [a=abc]", notDigests},
		{refresh, "abc", notDuration},
		{refresh, "-10m", notDuration},
		{annotation.SuspendName, "maybe", "is not true or false"},
		{annotation.AllowHTMLName, "html", "is not true or false"},
		{sha256, "abc", notDigests},
		{sha256, "a=abc", notDigests},
		{sha256, "a=" + digest + "00", notDigests},
		{sha256, "a=" + digest + "0", notDigests},
		{sha256, "a=" + digest + " [a=" + digest + "]", notDigests},
		{sha256, "a/b=" + digest, notDigests},
		{sha256, tooLong, notDigests},
		{sha256, "a=" + digest + " [c=" + digest + "]", "has a digest for key c, which is not requested"},
	} {
		request, err := grammar(t).Parse(with(c.name, strings.NewReplacer("[", "", "]", "").Replace(c.value)))
		shown := c.value
		if _, word, found := strings.Cut(shown, "["); found { // what the message quotes
			shown = strings.Split(word, "]")[0]
		}
		if shown == tooLong {
			shown = "…"
		}
		want := "annotation " + c.name + " value '" + shown + "' " + c.wrong + blocked
		if err == nil || err.Error() != want {
			t.Errorf("got %v, want %q", err, want)
		}
		if request.Pairs != nil {
			t.Errorf("%s %.99q: half of the annotations was used: %+v", c.name, c.value, request)
		}
	}
}
