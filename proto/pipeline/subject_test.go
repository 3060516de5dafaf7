package pipeline_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/kv8s/curl-me-that/proto/pipeline"
)

func TestSubjects(t *testing.T) {
	t.Parallel()
	k := pipeline.Key{Namespace: "default", Name: "kube-root-ca.crt", Key: "my.data"}
	const tokens = "default.kube-root-ca%2Ecrt.my%2Edata"
	for want, got := range map[string]string{
		"curl.want." + tokens:                                 k.WantSubject(),
		"curl.due." + tokens:                                  k.DueSubject(),
		"curl.timer." + tokens:                                k.TimerSubject(),
		"curl.result.content." + tokens:                       k.ContentSubject(),
		"curl.result.failure." + tokens:                       k.FailureSubject(),
		"curl.result.sync." + tokens:                          k.SyncSubject(),
		"curl.failure.Timeout.data%2Eexample%2Ecom." + tokens: k.DeadLetterSubject("Timeout", "data.example.com"),
		"curl.failure.AddressDenied.%28address%29." + tokens:  k.DeadLetterSubject("AddressDenied", "fe80::1%eth0"),
		"curl.failure.Malformed.%." + tokens:                  k.DeadLetterSubject("Malformed", ""),
		"curl.failure.Malformed.%.%.%.%":                      pipeline.Key{}.DeadLetterSubject("Malformed", ""),
		"curl.want.a_B-9.100%25%2A%3E.a%20b%09%0D%0A%C3%A4%00%FF": pipeline.Key{
			Namespace: "a_B-9", Name: "100%*>",
			Key: "a b\t\r\nä\x00\xff",
		}.WantSubject(),
		"curl.want.a.b%2Ec." + strings.Repeat("x", 253): pipeline.Key{
			Namespace: "a", Name: "b.c",
			Key: strings.Repeat("x", 253),
		}.WantSubject(),
		"curl.failure.Timeout." + strings.Repeat("h", 253) + "." + tokens: k.
			DeadLetterSubject("Timeout", strings.Repeat("h", 4096)),
	} {
		if got != want {
			t.Errorf("subject is %q, want %q", got, want)
		}
	}
	if got, want := k.String(), "default/kube-root-ca.crt/my.data"; got != want {
		t.Errorf("String() = %q, want %q", got, want)
	}
}

// The server closes the connection of a client whose control line exceeds 4,096 bytes, which
// include the reply subject.
func TestSubjectsFitTheControlLine(t *testing.T) {
	t.Parallel()
	dots := strings.Repeat(".", 253)
	k := pipeline.Key{Namespace: strings.Repeat("n", 63), Name: dots, Key: dots}
	if got := k.DeadLetterSubject("InvalidAnnotation", strings.Repeat(".", 64<<10)); len(got) > 3072 {
		t.Errorf("the longest subject has %d bytes", len(got))
	}
}

func TestParseSubjectRefuses(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{
		"", "curl", "curl.want", "curl.want.", "curl.want.a.b", "curl.want.a.b.c.d", "curl.want.a..c",
		"curl.want.*.b.c", "curl.want.a.b.>", "curl.wants.a.b.c", "CURL.want.a.b.c", "curl.result.a.b.c",
		"curl.result.other.a.b.c", "curl.failure.Timeout.host.a.b.c", "$JS.API.INFO", "curl.want.a.b.%2e", "curl.want.a.b.c%",
		"curl.want.a.b.%%", "curl.want.a.b.%2", "curl.want.a.b.%GG", "curl.want.a.b.%61", "curl.want.a.b.ä",
	} {
		if kind, k, err := pipeline.ParseSubject(bad); !errors.Is(err, pipeline.ErrSubject) {
			t.Errorf("ParseSubject(%q) = %v, %v, %v, want ErrSubject", bad, kind, k, err)
		}
	}
	for _, bad := range []string{
		"", "curl.failure", "curl.failure.", "curl.failure.Timeout", "curl.failure.Timeout.host",
		"curl.failure.Timeout.host.a.b",
		"curl.failure.Timeout.host.a.b.c.d", "curl.failure..host.a.b.c", "curl.failure.Timeout..a.b.c", "curl.want.a.b.c",
	} {
		if reason, host, k, err := pipeline.ParseDeadLetter(bad); !errors.Is(err, pipeline.ErrSubject) {
			t.Errorf("ParseDeadLetter(%q) = %q, %q, %v, %v, want ErrSubject", bad, reason, host, k, err)
		}
	}
}

func FuzzSubject(f *testing.F) {
	f.Add("default", "kube-root-ca.crt", "my.data", "Timeout", "data.example.com")
	f.Add("", "", "", "", "")
	f.Add("*", ">", "a.>", "..", "%")
	f.Add("a b", "\x00\r\n", "\xff", "%2E", "[::1]:80")
	f.Fuzz(func(t *testing.T, namespace, name, key, reason, host string) {
		k := pipeline.Key{Namespace: namespace, Name: name, Key: key}
		for kind, subject := range subjects(k) {
			tokens := 5
			if strings.HasPrefix(subject, "curl.result.") {
				tokens = 6
			}
			checkLiteral(t, subject, tokens)
			if gotKind, gotKey, err := pipeline.ParseSubject(subject); err != nil || gotKind != kind || gotKey != k {
				t.Errorf("ParseSubject(%q) = %v, %q, %v, want %v, %q", subject, gotKind, gotKey, err, kind, k)
			}
			if _, _, _, err := pipeline.ParseDeadLetter(subject); err == nil {
				t.Errorf("ParseDeadLetter(%q) accepts a subject of another kind", subject)
			}
		}
		subject := k.DeadLetterSubject(reason, host)
		checkLiteral(t, subject, 7)
		gotReason, gotHost, gotKey, err := pipeline.ParseDeadLetter(subject)
		if err != nil || gotReason != reason || gotHost != host[:min(len(host), 253)] || gotKey != k {
			t.Errorf("ParseDeadLetter(%q) = %q, %q, %q, %v", subject, gotReason, gotHost, gotKey, err)
		}
		if _, _, err := pipeline.ParseSubject(subject); err == nil {
			t.Errorf("ParseSubject(%q) accepts a dead letter", subject)
		}
	})
}

// subjects returns the subjects of a key.
func subjects(k pipeline.Key) map[pipeline.Kind]string {
	return map[pipeline.Kind]string{
		pipeline.KindWant: k.WantSubject(), pipeline.KindDue: k.DueSubject(), pipeline.KindTimer: k.TimerSubject(),
		pipeline.KindContent: k.ContentSubject(), pipeline.KindFailure: k.FailureSubject(),
		pipeline.KindSync: k.SyncSubject(),
	}
}

// checkLiteral fails if a subject has too many tokens for its kind, or one that NATS does not treat
// literally.
func checkLiteral(t *testing.T, subject string, tokens int) {
	t.Helper()
	parts := strings.Split(subject, ".")
	if len(parts) != tokens {
		t.Errorf("%q has %d tokens, want %d", subject, len(parts), tokens)
	}
	for _, part := range parts {
		if part == "" || strings.ContainsAny(part, "*> \t\r\n\f\x00") {
			t.Errorf("%q has the token %q", subject, part)
		}
	}
}
