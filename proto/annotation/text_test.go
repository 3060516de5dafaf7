package annotation_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/kv8s/curl-me-that/proto/annotation"
)

func TestErrorText(t *testing.T) {
	for name, c := range map[string]struct{ value, shown string }{
		"as written":         {"not correct", "not correct"},
		"as written, spaces": {"  not   correct ", "  not   correct "},
		"sample":             {"mydata=this isn't a url", "mydata=this isn't a url"},
		"new lines":          {"not\ncorrect\r\n", "not correct  "},
		"control characters": {"not\x00\x1bcorrect\u2028\u202e", "not  correct  "},
		"invalid UTF-8":      {"not \xff\xfe correct", "not \uFFFD correct"},
		"scheme":             {"a=ftp://e.example.com/x", "a=ftp://e.example.com/x"},
		"query":              {"a=ftp://e.example.com/x?token=secret", "a=ftp://e.example.com/x?…"},
		"query, next pair": {
			"a=e.example.com/?t=secret b=ftp://e.example.com?t=secret",
			"a=e.example.com/?… b=ftp://e.example.com?…",
		},
		"query over white space": {"a=e.example.com/?t=se cret or\nmore b=x", "a=e.example.com/?… b=x"},
		"empty query":            {"a=ftp://e.example.com/?", "a=ftp://e.example.com/?"},
		"fragment":               {"a=ftp://e.example.com/#secret", "a=ftp://e.example.com/#…"},
		"fragment and query":     {"a=ftp://e.example.com/#secret?secret", "a=ftp://e.example.com/#…"},
		"user":                   {"a=https://secret@e.example.com/x", "a=…"},
		"password":               {"a=https://user:secret@e.example.com/x?q=1 b=c", "a=… b=c"},
		"password, no scheme":    {"a=user:secret@e.example.com", "a=…"},
		"password, no key":       {"https://user:secret@e.example.com/x", "…"},
		"password, bad key":      {"$a=https://user:secret@e.example.com/x", "$a=…"},
		"? in password":          {"a=https://user:sec?ret@e.example.com b=c", "a=… b=c"},
		"space in password":      {"a=https://user:sec ret@e.example.com/x", "a=…"},
		"space before password":  {"a= https://user:secret@e.example.com/x", "a=…"},
		"a value too long":       {strings.Repeat("a", annotation.MaxValueBytes+1), "…"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := grammar(t).Parse(map[string]string{annotation.DefaultKey: "a=b", "x-kv8s.io/curl-suspend": c.value})
			want := "annotation curl-suspend value '" + c.shown + "' is not true or false" + blocked
			if err.Error() != want {
				t.Errorf("\n got %q\nwant %q", err, want)
			}
		})
	}
}

func TestErrorTextIsCut(t *testing.T) {
	shown := func(value string) string {
		_, err := grammar(t).Parse(ask(value))
		text := strings.TrimPrefix(err.Error(), "annotation value '")
		return strings.TrimSuffix(text, "' does not match expected format key=url")
	}
	if exact := strings.Repeat("ü", 200); shown(exact) != exact {
		t.Errorf("200 characters were shortened: %q", shown(exact))
	}
	if got := shown(strings.Repeat("ü", 201)); utf8.RuneCountInString(got) != 200 || !strings.HasSuffix(got, "ü…") {
		t.Errorf("201 characters gave %q", got)
	}
	// Secrets are hidden before the text is cut.
	if got := shown("a=https://user:" + strings.Repeat("s", 300) +
		"@e.example.com/ b"); got != "a=…" {
		t.Errorf("got %q", got)
	}
}

func TestOnlyTheBadPartIsShown(t *testing.T) {
	for value, shown := range map[string]string{
		"a=e.example.com oops b=e.example.com":         "a=e.example.com oops",
		"a=e.example.com b=e.example.com\noops":        "b=e.example.com oops",
		"oops a=e.example.com":                         "oops",
		"a=e.example.com/?t=S3CR3T et b=e.example.com": "a=e.example.com/?…",
		"b=c a=https://u:S3CR3 T @e.example.com/":      "a=…",
		"b=c a = https://e.example.com":                "b=c a = https://e.example.com",
	} {
		_, err := grammar(t).Parse(ask(value))
		if err == nil || err.Error() != "annotation value '"+shown+"' does not match expected format key=url" {
			t.Errorf("%s: got %v", value, err)
		}
	}
}

func TestAWordWithPartOfASecretIsNotShown(t *testing.T) {
	_, err := grammar(t).Parse(with(annotation.RefreshName, "1h a=https://user:sec ret@example.com"))
	if err == nil || err.Error() != "annotation curl-refresh value '1h a=…' is not a duration such as 10m"+blocked {
		t.Error(err)
	}
}
