package annotation_test

import (
	"net/url"
	"regexp"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/annotation/weburl"
)

// FuzzParse checks the grammar's invariants for arbitrary values.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"mydata=data.example.com",
		"a=https://e.example.com:8080/?q=1#f\nb=HTTP://[FE80::1%25lo]:080",
		"not correct",
		"$patch=e.example.com",
		"a=//x b=http:x c=x:1/@?#",
		"a=https://u:p@e.example.com/?t=s s b=%zz",
		"a=http://[::ffff:1.2.3.4]?\x00",
		"=\u00a0?\u2028#\xff",
	} {
		f.Add(seed)
	}
	g := grammar(f)
	f.Fuzz(func(t *testing.T, value string) {
		request, err := g.Parse(ask(value))
		if err != nil {
			checkRefusal(t, err)
			return
		}
		for _, problem := range request.Problems {
			checkText(t, problem.Text)
		}
		if len(request.Pairs) == 0 && !request.Skips() || len(request.Pairs) > annotation.MaxPairs {
			t.Fatalf("%d pairs", len(request.Pairs))
		}
		for i, pair := range request.Pairs {
			if i > 0 && pair.Key <= request.Pairs[i-1].Key {
				t.Errorf("key %q is not after %q", pair.Key, request.Pairs[i-1].Key)
			}
			checkPair(t, g, pair)
		}
	})
}

func checkPair(t *testing.T, g *annotation.Grammar, pair annotation.Pair) {
	t.Helper()
	if problems := validation.IsConfigMapKey(pair.Key); len(problems) > 0 {
		t.Errorf("key %q: %v", pair.Key, problems)
	}
	parsed, err := url.Parse(pair.URL)
	if err != nil || parsed.Hostname() == "" || parsed.User != nil || parsed.Fragment != "" ||
		len(pair.URL) > weburl.MaxBytes {
		t.Errorf("url %q: %+v, %v", pair.URL, parsed, err)
	}
	if parsed.Scheme != "http" && parsed.Scheme != "https" {
		t.Errorf("url %q: scheme %q", pair.URL, parsed.Scheme)
	}
	again, err := g.Parse(ask(pair.Key + "=" + pair.URL))
	if err != nil {
		t.Fatalf("canonical url %q is refused: %v", pair.URL, err)
	}
	if got, _ := again.URL(pair.Key); got != pair.URL {
		t.Errorf("canonical url %q became %q", pair.URL, got)
	}
}

// openQuery matches a query string that is not completely hidden.
var openQuery = regexp.MustCompile(`\?[^… ]`)

func checkRefusal(t *testing.T, err error) {
	t.Helper()
	checkText(t, err.Error())
	if strings.HasPrefix(err.Error(), "annotation curl-me-that") {
		return
	}
	shown, found := strings.CutPrefix(err.Error(), "annotation value '")
	shown, suffixed := strings.CutSuffix(shown, "' does not match expected format key=url")
	if !found || !suffixed || utf8.RuneCountInString(shown) > 200 {
		t.Errorf("text %q", err)
	}
	if openQuery.MatchString(shown) {
		t.Errorf("text shows a query: %q", err)
	}
}

func checkText(t *testing.T, text string) {
	t.Helper()
	for _, r := range text {
		if !unicode.IsPrint(r) {
			t.Errorf("text holds %U: %q", r, text)
		}
	}
}

// clearPort matches a password that starts like a port. Such a URL is valid, with the secret in its
// path.
var clearPort = regexp.MustCompile(`^[0-9]+[/?#]`)

// FuzzSecret hides a word in a password and checks that no message shows it.
func FuzzSecret(f *testing.F) {
	for _, seed := range [][2]string{
		{"", ""},
		{"/", ""},
		{"?", "#"},
		{"@", "/@"},
		{"[1]:2/", "://"},
		{"a=b", "=?x="},
		{"///", "0"},
	} {
		f.Add(seed[0], seed[1])
	}
	g := grammar(f)
	f.Fuzz(func(t *testing.T, before, after string) {
		password := before + "S3CR3T" + after
		odd := func(r rune) bool { return !unicode.IsPrint(r) || r == ' ' }
		if strings.IndexFunc(password, odd) >= 0 || clearPort.MatchString(password) {
			t.Skip()
		}
		for _, start := range []string{"a=https://user:", "a=user:", "https://user:", "user:"} {
			request, _ := g.Parse(ask(start + password + "@e.example.com/"))
			for _, problem := range request.Problems {
				if strings.Contains(problem.Text+problem.Rule, "S3CR3T") {
					t.Errorf("start %q, password %q: %q", start, password, problem.Text)
				}
			}
			_, err := g.Parse(ask(start + password + "@e.example.com/ bad"))
			if err == nil || strings.Contains(err.Error(), "S3CR3T") {
				t.Errorf("start %q, password %q: %v", start, password, err)
			}
		}
	})
}
