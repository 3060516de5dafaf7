package annotation_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kv8s/curl-me-that/proto/annotation"
)

func grammar(tb testing.TB) *annotation.Grammar {
	tb.Helper()
	g, err := annotation.New(annotation.Defaults())
	if err != nil {
		tb.Fatal(err)
	}
	return g
}

func ask(value string) map[string]string {
	return map[string]string{annotation.DefaultKey: value}
}

func TestParseAccepts(t *testing.T) {
	cases := map[string]struct {
		value string
		want  []annotation.Pair
	}{
		"one pair":           {"mydata=https://data.example.com", []annotation.Pair{{"mydata", "https://data.example.com"}}},
		"default scheme":     {"mydata=data.example.com", []annotation.Pair{{"mydata", "https://data.example.com"}}},
		"host and port":      {"a=data.example.com:8080/x", []annotation.Pair{{"a", "https://data.example.com:8080/x"}}},
		"localhost and port": {"a=http://localhost:8080 b=localhost:8080", []annotation.Pair{{"a", "http://localhost:8080"}, {"b", "https://localhost:8080"}}},
		"several, sorted":    {"b=b.example.com a=a.example.com", []annotation.Pair{{"a", "https://a.example.com"}, {"b", "https://b.example.com"}}},
		"new lines":          {"\na=a.example.com\n\tb=b.example.com\r\n", []annotation.Pair{{"a", "https://a.example.com"}, {"b", "https://b.example.com"}}},
		"= in the query":     {"a=https://e.example.com/?q=1&r=a=b", []annotation.Pair{{"a", "https://e.example.com/?q=1&r=a=b"}}},
		"url in the query":   {"a=e.example.com/?u=http://x.example.com", []annotation.Pair{{"a", "https://e.example.com/?u=http://x.example.com"}}},
		"query, no path":     {"a=http://e.example.com?q=1", []annotation.Pair{{"a", "http://e.example.com?q=1"}}},
		"upper case":         {"A=HTTP://E.Example.COM/Path?Q=X", []annotation.Pair{{"A", "http://e.example.com/Path?Q=X"}}},
		"fragment":           {"a=https://e.example.com/x#top", []annotation.Pair{{"a", "https://e.example.com/x"}}},
		"@ in the fragment":  {"a=http://127.0.0.1#@e.example.com/", []annotation.Pair{{"a", "http://127.0.0.1"}}},
		"@ in the path":      {"a=e.example.com/react@18", []annotation.Pair{{"a", "https://e.example.com/react@18"}}},
		"escapes":            {"a=https://e.example.com/%0d%0aX:1", []annotation.Pair{{"a", "https://e.example.com/%0d%0aX:1"}}},
		"root dot":           {"a=https://e.example.com./", []annotation.Pair{{"a", "https://e.example.com./"}}},
		"underscore":         {"a=https://e_e.example.com/", []annotation.Pair{{"a", "https://e_e.example.com/"}}},
		"punycode":           {"a=http://xn--exmple-cua.com/", []annotation.Pair{{"a", "http://xn--exmple-cua.com/"}}},
		"IPv4":               {"a=http://93.184.216.34/", []annotation.Pair{{"a", "http://93.184.216.34/"}}},
		"IPv6":               {"a=http://[2606:4700:4700::ABCD]/", []annotation.Pair{{"a", "http://[2606:4700:4700::abcd]/"}}},
		"IPv6 and port":      {"a=[::1]:8080/x", []annotation.Pair{{"a", "https://[::1]:8080/x"}}},
		"IPv6 and zone":      {"a=http://[fe80::1%25Eth0]:80/", []annotation.Pair{{"a", "http://[fe80::1%25Eth0]:80/"}}},
		"IPv6 mapped":        {"a=http://[::ffff:127.0.0.1]/", []annotation.Pair{{"a", "http://[::ffff:127.0.0.1]/"}}},
		"zeros before port":  {"a=http://e.example.com:0080/", []annotation.Pair{{"a", "http://e.example.com:80/"}}},
		"highest port":       {"a=http://e.example.com:65535", []annotation.Pair{{"a", "http://e.example.com:65535"}}},
		"key with dots":      {"kube-root_ca.crt=e.example.com", []annotation.Pair{{"kube-root_ca.crt", "https://e.example.com"}}},
		"same url twice":     {"a=e.example.com b=e.example.com", []annotation.Pair{{"a", "https://e.example.com"}, {"b", "https://e.example.com"}}},
		"longest url":        {"a=" + longURL(annotation.MaxURLBytes), []annotation.Pair{{"a", longURL(annotation.MaxURLBytes)}}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			request, err := grammar(t).Parse(ask(c.value))
			if err != nil {
				t.Fatalf("refused: %v", err)
			}
			if !slices.Equal(request.Pairs, c.want) {
				t.Errorf("got %q, want %q", request.Pairs, c.want)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	cases := map[string]struct{ value, cause string }{
		"empty":               {"", "the value is empty"},
		"white space":         {" \n\t", "the value is empty"},
		"no pair":             {"not correct", "pair 1: no = in it"},
		"words after a pair":  {"mydata=this isn't a url", "pair 2: no = in it"},
		"white space in url":  {"a=http://data.example.com /", "pair 2: no = in it"},
		"no key":              {"=e.example.com", "pair 1: the key is not legal in a ConfigMap"},
		"patch directive":     {"$patch=e.example.com", "pair 1: the key is not legal in a ConfigMap"},
		"slash in key":        {"a/b=e.example.com", "pair 1: the key is not legal in a ConfigMap"},
		"dot":                 {".=e.example.com", "pair 1: the key is not legal in a ConfigMap"},
		"parent directory":    {"..a=e.example.com", "pair 1: the key is not legal in a ConfigMap"},
		"long key":            {strings.Repeat("k", 254) + "=e.example.com", "pair 1: the key is not legal in a ConfigMap"},
		"url alone":           {"https://e.example.com/?a=b", "pair 1: the key is not legal in a ConfigMap"},
		"key twice":           {"a=x.example.com b=y.example.com a=x.example.com", "pair 3 (key a): the key is named twice"},
		"no url":              {"a=", "pair 1 (key a): the host is missing"},
		"scheme alone":        {"a=https://", "pair 1 (key a): the host is missing"},
		"path alone":          {"a=https:///etc/passwd", "pair 1 (key a): the host is missing"},
		"query alone":         {"a=?q=1", "pair 1 (key a): the host is missing"},
		"no scheme, slashes":  {"a=//data.example.com/", "pair 1 (key a): the host is missing"},
		"scheme, no slashes":  {"a=http:data.example.com", "pair 1 (key a): the url cannot be parsed"},
		"ftp":                 {"a=ftp://data.example.com/", "pair 1 (key a): the scheme is neither http nor https"},
		"file":                {"a=file:///etc/passwd", "pair 1 (key a): the scheme is neither http nor https"},
		"gopher":              {"a=gopher://127.0.0.1:6379/_FLUSHALL", "pair 1 (key a): the scheme is neither http nor https"},
		"http over a socket":  {"a=http+unix://%2Fvar%2Frun%2Fdocker.sock/", "pair 1 (key a): the scheme is neither http nor https"},
		"javascript":          {"a=javascript:alert(1)", "pair 1 (key a): the url cannot be parsed"},
		"jar":                 {"a=jar:http://x!/", "pair 1 (key a): the url cannot be parsed"},
		"password":            {"a=http://user:pw@data.example.com/", "pair 1 (key a): the url carries a user name or a password"},
		"user":                {"a=user@data.example.com/", "pair 1 (key a): the url carries a user name or a password"},
		"empty user":          {"a=http://@data.example.com/", "pair 1 (key a): the url carries a user name or a password"},
		"escaped slash":       {"a=http://data.example.com%2f@127.0.0.1/", "pair 1 (key a): the url carries a user name or a password"},
		"backslash in host":   {`a=http://127.0.0.1\.data.example.com/`, "pair 1 (key a): the url cannot be parsed"},
		"header injection":    {`a=http://data.example.com\r\nX-Injected:1/`, "pair 1 (key a): the url cannot be parsed"},
		"after the brackets":  {"a=http://[::1]evil/", "pair 1 (key a): the url cannot be parsed"},
		"IPv4 in brackets":    {"a=http://[127.0.0.1]/", "pair 1 (key a): "},
		"wide dots":           {"a=http://127。0。0。1/", "pair 1 (key a): the url has characters other than printable ASCII"},
		"wide letters":        {"a=http://ⅼocalhost/", "pair 1 (key a): the url has characters other than printable ASCII"},
		"control character":   {"a=http://e.example.com/\x00", "pair 1 (key a): the url has characters other than printable ASCII"},
		"invalid UTF-8":       {"a=http://e.example.com/\xff", "pair 1 (key a): the url has characters other than printable ASCII"},
		"escaped host":        {"a=http://ex%C3%A4mple.com/", "pair 1 (key a): the host is not a host name"},
		"= in host":           {"a=b=c", "pair 1 (key a): the host is not a host name"},
		"quote in host":       {"a=isn't", "pair 1 (key a): the host is not a host name"},
		"empty label":         {"a=e..example.com", "pair 1 (key a): the host is not a host name"},
		"long label":          {"a=" + strings.Repeat("h", 64) + ".example.com", "pair 1 (key a): the host is not a host name"},
		"long host":           {"a=" + strings.Repeat("h.", 125) + "long", "pair 1 (key a): the host is not a host name"},
		"broken escape":       {"a=http://data.example.com/%zz", "pair 1 (key a): the url cannot be parsed"},
		"negative port":       {"a=http://data.example.com:-1/", "pair 1 (key a): the url cannot be parsed"},
		"empty port":          {"a=http://data.example.com:/", "pair 1 (key a): the port is missing"},
		"port 0":              {"a=http://data.example.com:0/", "pair 1 (key a): the port is not a number from 1 to 65535"},
		"port 65536":          {"a=http://data.example.com:65536/", "pair 1 (key a): the port is not a number from 1 to 65535"},
		"long url":            {"a=" + longURL(annotation.MaxURLBytes+1), "pair 1 (key a): the url has more than 2048 characters"},
		"long without scheme": {"a=" + strings.TrimPrefix(longURL(annotation.MaxURLBytes+1), "https://"), "pair 1 (key a): the url has more than 2048 characters"},
		"second pair bad":     {"a=e.example.com b=ftp://e.example.com", "pair 2 (key b): the scheme is neither http nor https"},
		"many pairs":          {manyPairs(annotation.MaxPairs + 1), "129 pairs, more than 128"},
		"long value":          {strings.Repeat(" ", annotation.MaxValueBytes+1), "32769 bytes, more than 32768"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			request, err := grammar(t).Parse(ask(c.value))
			var refused *annotation.ValueError
			if !errors.As(err, &refused) {
				t.Fatalf("got %+v and error %v, want a ValueError", request, err)
			}
			if !strings.HasPrefix(refused.Cause(), c.cause) {
				t.Errorf("cause %q, want %q", refused.Cause(), c.cause)
			}
			if refused.Annotation() != annotation.DefaultKey {
				t.Errorf("annotation %q", refused.Annotation())
			}
			if !request.Present || request.Pairs != nil {
				t.Errorf("a refused value gave %+v", request)
			}
		})
	}
}

func TestParseTakesAsManyPairsAsAllowed(t *testing.T) {
	request, err := grammar(t).Parse(ask(manyPairs(annotation.MaxPairs)))
	if err != nil || len(request.Pairs) != annotation.MaxPairs {
		t.Fatalf("%d pairs, error %v", len(request.Pairs), err)
	}
	if url, found := request.URL("k17"); !found || url != "https://e.example.com/17" {
		t.Errorf("k17 is %q, %v", url, found)
	}
	if _, found := request.URL("k999"); found {
		t.Error("k999 was never asked for")
	}
}

func TestParseWithoutAnnotation(t *testing.T) {
	for _, annotations := range []map[string]string{
		nil,
		{"x-kv8s.io/curl-refresh": "rubbish", "other": "not correct"},
	} {
		request, err := grammar(t).Parse(annotations)
		if err != nil || request.Present {
			t.Errorf("%v: got %+v, %v", annotations, request, err)
		}
	}
}

func TestParseSpellings(t *testing.T) {
	request, err := grammar(t).Parse(map[string]string{
		annotation.LegacyKey:       "a=old.example.com",
		"x-k8s.io/curl-refresh":    "1h",
		"x-kv8s.io/curl-now":       "1",
		"unrelated/curl-suspend":   "true",
		"x-k8s.io/curl-now":        "2",
		"kv8s.example.com/curl-me": "a=none.example.com",
	})
	if err != nil {
		t.Fatal(err)
	}
	url, _ := request.URL("a")
	if request.Annotation != annotation.LegacyKey || url != "https://old.example.com" ||
		request.Refresh != time.Hour || request.Now != "1" || request.Suspended {
		t.Errorf("got %+v", request)
	}

	request, err = grammar(t).Parse(map[string]string{
		annotation.LegacyKey:  "not correct",
		annotation.DefaultKey: "a=new.example.com",
	})
	if url, _ := request.URL("a"); err != nil || url != "https://new.example.com" {
		t.Errorf("the newer spelling does not win: %+v, %v", request, err)
	}
}

func longURL(length int) string {
	const start = "https://e.example.com/"
	return start + strings.Repeat("x", length-len(start))
}

func manyPairs(count int) string {
	var text strings.Builder
	for i := range count {
		fmt.Fprintf(&text, "k%d=e.example.com/%d\n", i, i)
	}
	return text.String()
}
