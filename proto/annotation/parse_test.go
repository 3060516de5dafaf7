package annotation_test

import (
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/weburl"
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
	for value, want := range map[string]string{
		"mydata=https://data.example.com":                  "mydata=https://data.example.com",
		"mydata=data.example.com":                          "mydata=https://data.example.com",
		"a=data.example.com:8080/x":                        "a=https://data.example.com:8080/x",
		"a=http://localhost:8080 b=localhost:8080":         "a=http://localhost:8080 b=https://localhost:8080",
		"b=b.example.com a=a.example.com":                  "a=https://a.example.com b=https://b.example.com",
		"\na=a.example.com\n\tb=b.example.com\r\n":         "a=https://a.example.com b=https://b.example.com",
		"a=https://e.example.com/?q=1&r=a=b":               "a=https://e.example.com/?q=1&r=a=b",
		"a=e.example.com/?u=http://x.example.com":          "a=https://e.example.com/?u=http://x.example.com",
		"a=http://e.example.com?q=1":                       "a=http://e.example.com?q=1",
		"A=HTTP://E.Example.COM/Path?Q=X":                  "A=http://e.example.com/Path?Q=X",
		"a=https://e.example.com/x#top":                    "a=https://e.example.com/x",
		"a=http://127.0.0.1#@e.example.com/":               "a=http://127.0.0.1",
		"a=e.example.com/react@18":                         "a=https://e.example.com/react@18",
		"a=https://e.example.com/%0d%0aX:1":                "a=https://e.example.com/%0d%0aX:1",
		"a=https://e.example.com./":                        "a=https://e.example.com./",
		`a=e.example.com/g%2Fp/{id}|"<^>\;[+].json?a={b}%`: `a=https://e.example.com/g%2Fp/{id}|"<^>\;[+].json?a={b}%`,
		"a=https://e.example.com/ä%C3%A4?ö=é#ü":            "a=https://e.example.com/%C3%A4%C3%A4?%C3%B6=%C3%A9",
		"a=https://Bücher.example:8443/x":                  "a=https://xn--bcher-kva.example:8443/x",
		"a=http://ex%C3%A4mple.com/":                       "a=http://xn--exmple-cua.com/",
		"a=例え。jp":                                          "a=https://xn--r8jz45g.jp",
		"a=http:8080/x b=https/x":                          "a=https://http:8080/x b=https://https/x",
		"a=http://xn--exmple-cua.com/":                     "a=http://xn--exmple-cua.com/",
		"a=http://93.184.216.34/":                          "a=http://93.184.216.34/",
		"a=http://[2606:4700:4700::ABCD]/":                 "a=http://[2606:4700:4700::abcd]/",
		"a=[::1]:8080/x":                                   "a=https://[::1]:8080/x",
		"a=http://[fe80::1%25Eth0]:80/":                    "a=http://[fe80::1%25Eth0]:80/",
		"a=http://[fe80::1%25Az0-9_z.9]/":                  "a=http://[fe80::1%25Az0-9_z.9]/",
		"a=" + longName(253) + ":80/":                      "a=https://" + longName(253) + ":80/",
		"a=http://[::ffff:127.0.0.1]/":                     "a=http://[::ffff:127.0.0.1]/",
		"a=http://e.example.com:0080/":                     "a=http://e.example.com:80/",
		"a=http://e.example.com:65535":                     "a=http://e.example.com:65535",
		"kube-root_ca.crt=e.example.com":                   "kube-root_ca.crt=https://e.example.com",
		"a=e.example.com b=e.example.com":                  "a=https://e.example.com b=https://e.example.com",
		"a=" + longURL(weburl.MaxBytes):                    "a=" + longURL(weburl.MaxBytes),
	} {
		request, err := grammar(t).Parse(ask(value))
		var got []string
		for _, pair := range request.Pairs {
			got = append(got, pair.Key+"="+pair.URL)
		}
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("%q: got %q, %v, want %q", value, got, err, want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	const (
		badKey    = "pair 1: the key has characters other than letters, digits, -, _ and ."
		noHost    = "pair 1 (key a): the host is missing"
		backslash = `pair 1 (key a): the host contains \`
		noIPv6    = "pair 1 (key a): the host is not an IPv6 address"
		hidden    = "pair 1 (key a): the url contains an invisible character"
		badName   = "pair 1 (key a): the host is not an international domain name"
		badScheme = "pair 1 (key a): the scheme must be http or https"
		hasUser   = "pair 1 (key a): the url contains a user name or a password"
		badZone   = "pair 1 (key a): the host is not an IPv6 address with a zone"
		badHost   = "pair 1 (key a): the host is not a host name"
		tooLong   = "pair 1 (key a): the url is longer than 2048 characters"
		badPort   = "pair 1 (key a): the port is not a number from 1 to 65535"
	)
	for value, cause := range map[string]string{
		"$patch=e.example.com":                                     badKey,
		".=e.example.com":                                          "pair 1: the key is . or begins with ..",
		strings.Repeat("k", 254) + "=e.example.com":                "pair 1: the key is longer than 253 characters",
		"a=https://":                                               noHost,
		"a=https:///etc/passwd":                                    noHost,
		"a=?q=1":                                                   noHost,
		"a=//data.example.com/":                                    noHost,
		"a=file:///etc/passwd":                                     badScheme,
		"a=gopher://127.0.0.1:6379/_FLUSHALL":                      badScheme,
		"a=http+unix://%2Fvar%2Frun%2Fdocker.sock/":                badScheme,
		"a=javascript:alert(1)":                                    badScheme,
		"a=jar:http://x!/":                                         "pair 1 (key a): the host contains :",
		"a=user@data.example.com/":                                 hasUser,
		"a=http://@data.example.com/":                              hasUser,
		"a=http://data.example.com%2f@127.0.0.1/":                  hasUser,
		`a=http://127.0.0.1\.data.example.com/`:                    backslash,
		`a=http://data.example.com\r\nX-Injected:1/`:               backslash,
		"a=http://[::1]evil/":                                      noIPv6,
		"a=http://[127.0.0.1]/":                                    noIPv6,
		"a=http://[localhost]/":                                    noIPv6,
		"a=http://[::1%25]/":                                       badZone,
		"a=http://[::1%25x%5D]/":                                   badZone,
		"a=http://[::1%25x%20y]/":                                  badZone,
		"a=http://[::1%25x:9]/":                                    badZone,
		"a=http://127。0。0。1/":                                      badName,
		"a=http://ⅼocalhost/":                                      badName,
		"a=http://e.example.com/\x00":                              hidden,
		"a=http://\xff.example.com/":                               badName,
		"a=http://%e2%93%9bocalhost/":                              badName,
		"a=http://data%2eexample.com/":                             "pair 1 (key a): the host contains %",
		"a=b=c":                                                    "pair 1 (key a): the host contains =",
		"a=isn't":                                                  "pair 1 (key a): the host contains '",
		"a=e..example.com":                                         badHost,
		"a=" + strings.Repeat("h", 64) + ".example.com":            badHost,
		"a=e..example.com:80":                                      badHost,
		"a=" + longName(254):                                       badHost,
		"a=e.example.com/#" + strings.Repeat("x", weburl.MaxBytes): tooLong,
		"a=" + strings.Repeat("h.", 125) + "long":                  badHost,
		"a=http://data.example.com:-1/":                            badPort,
		"a=http://data.example.com:/":                              "pair 1 (key a): the port is missing",
		"a=http://data.example.com:0/":                             badPort,
		"a=http://data.example.com:65536/":                         badPort,
		"a=" + strings.TrimPrefix(longURL(weburl.MaxBytes+1), "https://"): tooLong,
		"a=e.example.com b=ftp://e.example.com":                           "pair 2 (key b): the scheme must be http or https",

		"a=file:/etc/passwd":         badScheme,
		"a=Data:text/plain,x":        badScheme,
		"a=about:blank":              badScheme,
		"a=data:/":                   badScheme,
		"a=data:65536/":              badPort,
		"a=data:x@data.example.com/": hasUser,
	} {
		request, err := grammar(t).Parse(ask(value))
		if got := onlyRefusal(t, request); err != nil || !strings.HasPrefix(got, cause) {
			t.Errorf("%.99q: refused as %q, %v, want %q", value, got, err, cause)
		}
	}
}

// onlyRefusal returns the number and key of the only rejected pair, and the rule that it breaks.
func onlyRefusal(t *testing.T, request annotation.Request) string {
	t.Helper()
	if len(request.Problems) != 1 || !request.Problems[0].Rejected || !request.Rejects() {
		t.Fatalf("not exactly one pair is rejected: %+v", request)
	}
	text, found := strings.CutPrefix(request.Problems[0].Text, "annotation curl-me-that, ")
	if !found {
		t.Errorf("text %q", request.Problems[0].Text)
	}
	what, _, _ := strings.Cut(text, "; ")
	return what
}

func TestAFieldThatIsNotAPairRejectsTheWholeValue(t *testing.T) {
	for _, value := range []string{
		"not correct", "mydata=this isn't a url", "=e.example.com",
		"https://e.example.com/?a=b", "a=e.example.com oops", "a=http://data.example.com /",
	} {
		request, err := grammar(t).Parse(ask(value))
		if err == nil || !strings.HasSuffix(err.Error(), "' does not match expected format key=url") ||
			!request.Present || request.Pairs != nil {
			t.Errorf("%q: got %v", value, err)
		}
	}
	for value, want := range map[string]string{
		manyPairs(annotation.MaxPairs + 1): "annotation curl-me-that has 129 pairs, more than 128; spread " +
			"the pairs over several ConfigMaps" + blocked,
		strings.Repeat(" ", annotation.MaxValueBytes+1): "annotation curl-me-that has 32769 bytes, more than 32768; " +
			"spread the pairs over several ConfigMaps" + blocked,
	} {
		if _, err := grammar(t).Parse(ask(value)); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestAnEmptiedAnnotationSaysWhatHappensToTheData(t *testing.T) {
	const want = "annotation curl-me-that is empty, so nothing is fetched and no key is removed; write key=url, or " +
		"remove the annotation to remove the keys that it filled"
	for _, value := range []string{"", " \n\t"} {
		request, err := grammar(t).Parse(ask(value))
		if err == nil || !request.Present || request.Pairs != nil || err.Error() != want {
			t.Errorf("%q: got %v", value, err)
		}
	}
}

func TestABadPairDoesNotAffectOthers(t *testing.T) {
	const (
		badKey  = ": the key has characters other than letters, digits, -, _ and .; use only those"
		comma   = " (key b): the host contains a comma or semicolon; separate pairs by spaces"
		hasUser = " (key b): the url contains a user name or a password; remove it, and ask the operator to configure " +
			"credentials for that host"
		joined = " (key b): the url contains what looks like another pair; separate pairs by spaces, or " +
			"write %2C or %3B if the comma or semicolon belongs to the url"
		mistyped = " (key b): the url does not begin with http:// or https:// exactly once; write it as in " +
			"key=https://example.com/path"
		hidden = " (key b): the url contains an invisible character, such as a byte order mark or a zero-width space; " +
			"delete the url and type it again, or escape it, as in %E2%80%8B"
		percent = " (key b): the url contains a percent sign without two hexadecimal digits; write %25 for a percent " +
			"sign"
		brace      = " (key b): the host contains {; write it as in key=https://example.com/path"
		quoted     = " (key b): the url is in quotes or brackets; remove them"
		underscore = " (key b): the host contains an underscore, which no host name has; use another name of that " +
			"server, or ask its owner for one"
		badPort = " (key b): the port is not a number from 1 to 65535; write it as in key=https://example.com/path"
		twice   = " (key b): the key appears twice, so none of its urls is fetched; use each key once"
	)
	for bad, want := range map[string]string{
		"b=ftp://e.example.com/?token=S3CR3T":       "2 (key b): the scheme must be http or https; use http:// or https://",
		"b=https://u:S3CR3T@e.example.com":          "2" + hasUser,
		"p/b=e.example.com":                         "2" + badKey,
		"..b=e.example.com":                         "2: the key is . or begins with ..; use another one",
		"p/b=":                                      "2" + badKey,
		"b=":                                        "2 (key b): the host is missing; write key=host/path",
		"b=e.example.com,d=f.example.com":           "2" + comma,
		"b=https://e.example.com,d=https://f.ex":    "2" + comma,
		"b=https://e.example.com/x,d=https://f.ex":  "2" + joined,
		"b=https://e_1.example.com":                 "2" + underscore,
		"b=e-example.com:http":                      "2" + badPort,
		`b="https://e.example.com"`:                 "2" + quoted,
		`b='e.example.com/x'`:                       "2" + quoted,
		`b=\"https://e.example.com\"`:               "2" + quoted,
		"b=\u201chttps://e.example.com\u201d":       "2" + quoted,
		"b=<https://e.example.com>":                 "2" + quoted,
		`"b=https://e.example.com"`:                 "2: the pair is in quotes; remove them",
		"b=https:/e.example.com/x":                  "2" + mistyped,
		"b=https//e.example.com/x":                  "2" + mistyped,
		"b=https:e.example.com/x":                   "2" + mistyped,
		"b=HTTP;//e.example.com/x":                  "2" + mistyped,
		`b=https:\\e.example.com\x`:                 "2" + mistyped,
		"b=https\uff1a//e.example.com/x":            "2" + mistyped,
		"b=https://http://e.example.com/x":          "2" + mistyped,
		"b=\ufeffhttps://e.example.com":             "2" + hidden,
		"b=https://e.exa\u200bmple.com":             "2" + hidden,
		"b=https://e.example.com/x\u2060":           "2" + hidden,
		"b=https://e.example.com/x\u00ad":           "2" + hidden,
		"b=https://e.example.com/\u3164":            "2" + hidden,
		"b=https://e.example.com/100%":              "2" + percent,
		"b={{.url}}":                                "2" + brace,
		"b=e.example.com;d=f.example.com":           "2" + comma,
		"b=https://e.example.com/x;d=https://f.ex":  "2" + joined,
		`b=https://e.example.com/x\nd=https://f.ex`: "2" + joined,
		"\ufeffb=https://e.example.com": "2: the key contains an invisible character, such as a byte order mark or a " +
			"zero-width space; delete the key and type it again",
		"b=" + longURL(weburl.MaxBytes+1):        "2 (key b): the url is longer than 2048 characters; use a shorter one",
		"b=x.example.com b=y.example.com":        "3" + twice,
		"b=x.example.com b=y.example.com b=z.ex": "3" + twice,
	} {
		request, err := grammar(t).Parse(ask("a=a.example.com " + bad + " c=c.example.com"))
		if err != nil || len(request.Problems) != 1 || !request.Rejects() {
			t.Errorf("%s: got %+v, %v", bad, request, err)
			continue
		}
		problem := request.Problems[0]
		if problem.Text != "annotation curl-me-that, pair "+want {
			t.Errorf("%s: got %s", bad, problem.Text)
		}
		if _, asked := request.URL("b"); asked || len(request.Pairs) != 2 ||
			!request.Mentions("a") || !request.Mentions("c") ||
			request.Mentions("d") || request.Mentions("") {
			t.Errorf("%s: asks for %v", bad, request.Pairs)
		}
		if legal := strings.HasPrefix(bad, "b="); request.Mentions("b") != legal {
			t.Errorf("%s: names b: %v", bad, !legal)
		}
	}
}

func TestAPossiblePasswordAfterASpaceIsHidden(t *testing.T) {
	request, err := grammar(t).Parse(ask("a=https://user:first S3CR3T=x@e.example.com"))
	if err != nil || len(request.Problems) != 2 || strings.Contains(request.Problems[1].Text, "S3CR3T") {
		t.Errorf("got %+v, %v", request, err)
	}
	for _, value := range []string{
		"a=ftp://a.example.com b=ftp://b.example.com",
		"a=ftp://a.example.com c=c.example.com b=https://u:p@b.example.com",
	} {
		request, err := grammar(t).Parse(ask(value))
		if err != nil || len(request.Problems) != 2 || !strings.Contains(request.Problems[1].Text, "(key b)") {
			t.Errorf("%s: a key that does not follow a password is hidden: %+v, %v", value, request, err)
		}
	}
}

func TestOddAnnotationsDoNotAffectOthers(t *testing.T) {
	for name, c := range map[string]struct {
		more map[string]string
		want []string
	}{
		"nothing odd": {map[string]string{
			"x-kv8s.io/curl-refresh": "1h", annotation.StatusKey: "{}", "x-kv8s.io/other": "",
			"other/curl-x": "", annotation.LegacyKey: "a=a.example.com",
		}, nil},
		"a typo": {
			map[string]string{"x-kv8s.io/curl-refrsh": "1h"},
			[]string{"annotation x-kv8s.io/curl-refrsh is unknown and has no effect; did you mean curl-refresh?"},
		},
		"twice curl-": {
			map[string]string{"x-kv8s.io/curl-curl-refresh": "1h"},
			[]string{"annotation x-kv8s.io/curl-curl-refresh is unknown and has no effect; use one of curl-me-that, " +
				"curl-refresh, curl-now, curl-suspend, curl-sha256, curl-expect, curl-select, curl-allow-html"},
		},
		"not a typo": {
			map[string]string{"x-k8s.io/curl-header": "x"},
			[]string{"annotation x-k8s.io/curl-header is unknown and has no effect; use one of curl-me-that, curl-refresh, " +
				"curl-now, curl-suspend, curl-sha256, curl-expect, curl-select, curl-allow-html"},
		},
		"a second one": {
			map[string]string{annotation.LegacyKey: "b=b.example.com"},
			[]string{"annotation x-k8s.io/curl-me-that is ignored, because x-kv8s.io/curl-me-that takes precedence; remove " +
				"one of them"},
		},
		"too often": {
			map[string]string{"x-kv8s.io/curl-refresh": "1s"},
			[]string{"curl-refresh is 1s, below the minimum of 10s; 10s is used"},
		},
		"too rare": {
			map[string]string{"x-kv8s.io/curl-refresh": "400d"},
			[]string{"curl-refresh is 400d, above the maximum of 365d; 365d is used"},
		},
	} {
		annotations := ask("a=a.example.com")
		maps.Copy(annotations, c.more)
		request, err := grammar(t).Parse(annotations)
		got := texts(t, request)
		if err != nil || !slices.Equal(got, c.want) || request.Rejects() || len(request.Pairs) != 1 {
			t.Errorf("%s: got %q, %v", name, got, err)
		}
	}
}

// texts returns the sentences of the problems. Each problem must have a rule.
func texts(t *testing.T, request annotation.Request) (all []string) {
	t.Helper()
	for _, problem := range request.Problems {
		all = append(all, problem.Text)
		if problem.Mistake == "" {
			t.Errorf("no rule: %+v", problem)
		}
	}
	return all
}

func object(annotations, labels map[string]string) metav1.Object {
	return &metav1.ObjectMeta{Annotations: annotations, Labels: labels}
}

// blocked ends the sentence about an annotation that stops all fetches.
const blocked = "; nothing is fetched until this is corrected"

func TestPairsSeparatedByCommasAreNotFetched(t *testing.T) {
	for value, want := range map[string]string{
		"a=a.example.com/x, b=b.example.com": "annotation curl-me-that, pair 1 (key a): ",
		"a=a.example.com, b=b.example.com":   "annotation curl-me-that, pair 1 (key a): ",
		"a=a.example.com/x; b=b.example.com": "annotation curl-me-that, pair 1 (key a): ",
		"b=b.example.com a/=a.example.com,":  "annotation curl-me-that, pair 2: ",
	} {
		request, err := grammar(t).Parse(ask(value))
		want += "the url ends with a comma or semicolon; separate pairs by spaces only, or write %2C or %3B if it belongs " +
			"to the url" + blocked
		if err == nil || err.Error() != want || len(request.Pairs) > 0 {
			t.Errorf("%s: got %v", value, err)
		}
	}
	request, err := grammar(t).Parse(ask("a=a.example.com/x,y;z b=b.example.com/x%2C?q=1,c=http://x;d=http://x"))
	if err != nil || len(request.Pairs) != 2 || len(request.Problems) > 0 {
		t.Errorf("commas within a URL: got %+v, %v", request, err)
	}
}

func TestParseAcceptsTheMaximumNumberOfPairs(t *testing.T) {
	request, err := grammar(t).Parse(ask(manyPairs(annotation.MaxPairs)))
	if err != nil || len(request.Pairs) != annotation.MaxPairs {
		t.Fatalf("%d pairs, error %v", len(request.Pairs), err)
	}
	if url, found := request.URL("k17"); !found || url != "https://e.example.com/17" {
		t.Errorf("k17 is %q, %v", url, found)
	}
	if _, found := request.URL("k999"); found {
		t.Error("k999 was never requested")
	}
}

func TestParseWithoutAnnotation(t *testing.T) {
	for _, annotations := range []map[string]string{nil, {"x-kv8s.io/curl-refresh": "rubbish", "other": "not correct"}} {
		request, err := grammar(t).Parse(annotations)
		if err != nil || request.Present {
			t.Errorf("%v: got %+v, %v", annotations, request, err)
		}
	}
	request, err := grammar(t).Parse(map[string]string{"x-kv8s.io/curl-suspend": "true"})
	if err != nil || !request.Suspended {
		t.Errorf("suspended without the annotation: got %+v, %v", request, err)
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
		t.Errorf("the newer spelling does not take precedence: %+v, %v", request, err)
	}
}

func longURL(length int) string {
	const start = "https://e.example.com/"
	return start + strings.Repeat("x", length-len(start))
}

// longName returns a host name of labels of maximum length, with the characters at both ends of
// each allowed range.
func longName(length int) string {
	label := strings.Repeat("az09-", 13)[:63] + "."
	return strings.Repeat(label, length/len(label)+1)[:length]
}

func manyPairs(count int) string {
	var text strings.Builder
	for i := range count {
		fmt.Fprintf(&text, "k%d=e.example.com/%d\n", i, i)
	}
	return text.String()
}

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
		if len(request.Pairs) == 0 && !request.Rejects() || len(request.Pairs) > annotation.MaxPairs {
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
				if strings.Contains(problem.Text+problem.Mistake, "S3CR3T") {
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
