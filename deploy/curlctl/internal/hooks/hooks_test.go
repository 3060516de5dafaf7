package hooks_test

import (
	"bufio"
	"context"
	"crypto/hmac"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/hooks"
	"github.com/kv8s/curl-me-that/proto/process/metric"
)

const (
	secret     = "0123456789abcdef"
	signingKey = "whsec_MDEyMzQ1Njc4OWFiY2RlZg==" // of GitLab
	config     = `hooks:
- {name: git, url: "https://git.example.com/rules/", kind: hmac, secretFile: secret}
- {name: lab, url: "https://lab.example.com/", kind: gitlab, secretFile: secret}
- {name: signed, url: "https://lab.example.com/", kind: standard, secretFile: key}
- {name: plain, url: "https://plain.example.com/", kind: bearer, secretFile: secret}
- {name: other, url: "https://other.example.com/", kind: bearer, secretFile: secret}
`
)

// refetches records calls in place of NATS, which replicas share.
type refetches struct {
	sync.Mutex

	at  []time.Time
	ids map[string]bool
	// failures is the number of calls that still fail, each after 20 s.
	failures int
}

func (r *refetches) refetch(_ context.Context, prefix string, id int64) (int, bool, error) {
	r.Lock()
	defer r.Unlock()
	if r.failures > 0 {
		r.failures--
		time.Sleep(20 * time.Second) //nolint:forbidigo // in the bubble of synctest
		return 0, false, errors.New("no servers")
	}
	if strings.HasPrefix(prefix, "https://other") {
		return 0, false, nil
	}
	key := fmt.Sprint(prefix, id)
	already := r.ids[key]
	if r.ids == nil {
		r.ids = map[string]bool{}
	}
	if r.ids[key] = true; !already {
		r.at = append(r.at, time.Now())
	}
	return 1, already, nil
}

func (r *refetches) count() int {
	r.Lock()
	defer r.Unlock()
	return len(r.at)
}

// write writes a file of hooks and their secret.
func write(t *testing.T, content, secret string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"hooks.yaml": content, "secret": secret, "key": signingKey + "\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "hooks.yaml")
}

// serving returns a server and its counters by outcome.
func serving(t *testing.T, r *refetches) (*hooks.Server, func() map[string]int) {
	t.Helper()
	all, err := hooks.Load(write(t, config, secret+"\n"))
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	s := hooks.New(all, r.refetch, zerolog.Nop(), metric.New(registry, "hooks"))
	return s, func() map[string]int {
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		counts := map[string]int{}
		for _, family := range families {
			for _, m := range family.GetMetric() {
				if value := int(m.GetCounter().GetValue()); value > 0 && len(m.GetLabel()) > 0 {
					counts[m.GetLabel()[0].GetValue()] = value
				}
			}
		}
		return counts
	}
}

func sum(of func() hash.Hash, key, body string) string {
	mac := hmac.New(of, []byte(key))
	mac.Write([]byte(body))
	return hex.EncodeToString(mac.Sum(nil))
}

// post returns a request in HTTP/1.1 with a length.
func post(path, body string, headers ...string) string {
	lines := append([]string{
		"POST " + path + " HTTP/1.1", "Host: hooks", fmt.Sprint("Content-Length: ", len(body)), "Connection: close",
	}, headers...)
	return strings.Join(lines, "\r\n") + "\r\n\r\n" + body
}

func TestThirtyHostileRequestsChangeNothingAndAreOneCounterEach(t *testing.T) {
	const body = `{"ref":"refs/heads/main"}`
	mac := sum(sha256.New, secret, body)
	signed := "X-Hub-Signature-256: sha256=" + mac
	chunked := "POST /hooks/git HTTP/1.1\r\nHost: hooks\r\nTransfer-Encoding: chunked\r\n" + signed + "\r\n\r\n"
	git := func(body string, headers ...string) string { return post("/hooks/git", body, headers...) }
	lab, gitea := "X-Gitlab-Token: "+secret, "X-Gitea-Signature: "
	for outcome, requests := range map[string]map[string]string{
		"unauthorized": {
			"no signature":            git(body),
			"an empty signature":      git(body, "X-Hub-Signature-256: "),
			"only the prefix":         git(body, "X-Hub-Signature-256: sha256="),
			"another secret":          git(body, gitea+sum(sha256.New, "x", body)),
			"another body":            git(body+" ", signed),
			"an empty secret":         git(body, gitea+sum(sha256.New, "", body)),
			"half a signature":        git(body, signed[:len(signed)-32]),
			"one digit less":          git(body, signed[:len(signed)-1]),
			"another last digit":      git(body, signed[:len(signed)-1]+"!"),
			"a longer signature":      git(body, signed+"00"),
			"SHA-1":                   git(body, "X-Hub-Signature: sha1="+sum(sha1.New, secret, body)),
			"two signatures":          git(body, signed, signed),
			"a wrong one before":      git(body, "X-Hub-Signature-256: x", gitea+mac),
			"the secret as a token":   git(body, "Authorization: Bearer "+secret),
			"a header of another way": post("/hooks/plain", body, lab),
			"a signed body for lab":   post("/hooks/lab", body, signed),
			"a token that is longer":  post("/hooks/lab", body, lab+"0"),
			"two tokens":              post("/hooks/lab", body, lab, lab),
			"a token without Bearer":  post("/hooks/plain", body, "Authorization: "+secret),
			"a token in the query":    post("/hooks/plain?token="+secret, body),
			"an unknown hook":         post("/hooks/none", body, signed),
			"a path outside":          post("/hooks/../hooks/git", body, signed),
			"another method":          strings.Replace(git(body, signed), "POST", "PUT", 1),
		},
		"oversized": {
			"1 GB announced":             strings.Replace(git(body, signed), "Length: ", "Length: 10000000", 1),
			"1 MiB and a byte in chunks": chunked + "100001\r\n" + strings.Repeat("x", 1<<20+1) + "\r\n0\r\n\r\n",
		},
		"incomplete": {
			"a body cut off": strings.TrimSuffix(git(body, signed), "}"),
			"a bad chunk":    chunked + "zz\r\n",
		},
		"malformed": {
			"header splitting":  git(body, "X-A: b\rX-Gitea-Signature: "+mac),
			"two lengths":       git(body, signed, "Content-Length: 3"),
			"huge headers":      git(body, signed, "X-A: "+strings.Repeat("x", 64<<10)),
			"no HTTP":           "\x16\x03\x01\x02\x00\x01\x00\r\n\r\n",
			"half a header":     "POST /hooks/git HTTP/1.1\r\nHost: ho",
			"a space in a name": git(body, "X-Hub-Signature-256 : sha256="+mac),
		},
	} {
		for name, request := range requests {
			t.Run(name, func(t *testing.T) {
				r := new(refetches)
				s, counts := serving(t, r)
				response := exchange(t, s, request)
				if !strings.HasPrefix(response, "HTTP/1.1 4") && response != "" {
					t.Errorf("the response is %q", response)
				}
				NewWithT(t).Eventually(counts).WithTimeout(time.Minute).Should(Equal(map[string]int{outcome: 1}))
				if r.count() > 0 {
					t.Errorf("%d refetches", r.count())
				}
			})
		}
	}
}

// exchange sends a request, ends the sending side, and returns the first line of the response after the server has
// stopped.
func exchange(t *testing.T, s *hooks.Server, request string) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stopped := make(chan error)
	go func() { stopped <- s.Serve(ctx, listener) }()
	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_, _ = conn.Write([]byte(request))
	_ = conn.(*net.TCPConn).CloseWrite()
	reader := bufio.NewReader(conn)
	line, _ := reader.ReadString('\n')
	_, _ = reader.WriteTo(new(strings.Builder)) // until the server closes
	_ = conn.Close()
	stop()
	if err := <-stopped; err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(line)
}

// signing returns the headers of Standard Webhooks for a body that was sent at a time.
func signing(body string, at time.Time) map[string]string {
	mac := hmac.New(sha256.New, []byte(secret))
	_, _ = fmt.Fprintf(mac, "7.%d.%s", at.Unix(), body)
	return map[string]string{
		"Webhook-Id": "7", "Webhook-Timestamp": fmt.Sprint(at.Unix()),
		"Webhook-Signature": "v1,bm9uZQ== v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)), // an earlier key first
	}
}

// ask sends a hook with headers, and returns the status.
func ask(s *hooks.Server, name, body string, headers map[string]string) int {
	r := httptest.NewRequest(http.MethodPost, "/hooks/"+name, strings.NewReader(body))
	for key, value := range headers {
		r.Header.Set(key, value)
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w.Code
}

var bearer = map[string]string{"Authorization": "Bearer " + secret}

func TestSendersProveThatTheyKnowTheSecret(t *testing.T) {
	body := `{"a":1}`
	mac := sum(sha256.New, secret, body)
	for name, c := range map[string]struct {
		hook    string
		headers map[string]string
		want    int
	}{
		"GitHub": {"git", map[string]string{
			"X-Hub-Signature-256": "sha256=" + mac, "X-Hub-Signature": "sha1=" + sum(sha1.New, secret, body),
		}, 202},
		"Gitea":              {"git", map[string]string{"X-Gitea-Signature": mac, "X-Hub-Signature": "sha1=00"}, 202},
		"Bitbucket":          {"git", map[string]string{"X-Hub-Signature": "sha256=" + mac}, 202},
		"GitLab":             {"lab", map[string]string{"X-Gitlab-Token": secret}, 202},
		"GitLab with a key":  {"signed", signing(body, time.Now()), 202},
		"GitLab, replayed":   {"signed", signing(body, time.Now().Add(-time.Hour)), 401},
		"GitLab, forged":     {"signed", signing("{}", time.Now()), 401},
		"no signature":       {"signed", map[string]string{"X-Gitlab-Token": signingKey}, 401},
		"curl":               {"plain", bearer, 202},
		"curl without wants": {"other", bearer, 204},
	} {
		s, _ := serving(t, new(refetches))
		if got := ask(s, c.hook, body, c.headers); got != c.want {
			t.Errorf("%s: %d", name, got)
		}
	}
}

func TestTenThousandHooksInAMinuteCostOneRefetchPerTenSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := new(refetches)
		var replicas []*hooks.Server
		for range 2 {
			s, _ := serving(t, r)
			replicas = append(replicas, s)
		}
		for i := range 10_000 {
			if got := ask(replicas[i%2], "plain", "", bearer); got != 202 {
				t.Fatal(got)
			}
			time.Sleep(6 * time.Millisecond) //nolint:forbidigo // in the bubble of synctest
		}
		last := time.Now()
		time.Sleep(time.Minute) //nolint:forbidigo // in the bubble of synctest
		if n := r.count(); n < 6 || n > 8 {
			t.Errorf("%d refetches", n)
		}
		if !r.at[len(r.at)-1].After(last) {
			t.Error("no refetch follows the last hook")
		}
	})
}

func TestAHookThatCannotBeServedNowIsServedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &refetches{failures: 3}
		s, counts := serving(t, r)
		if got := ask(s, "plain", "", bearer); got != 503 || counts()["unavailable"] != 1 {
			t.Errorf("%d, %v", got, counts())
		}
		if r.count() > 0 {
			t.Error("the sender waited for a second try")
		}
		time.Sleep(2 * time.Minute) //nolint:forbidigo // in the bubble of synctest
		if r.count() != 1 {
			t.Errorf("%d refetches", r.count())
		}
	})
}

func TestMistakesInTheFileAreOneSentence(t *testing.T) {
	entry := func(change ...string) string {
		return strings.NewReplacer(change...).Replace(`hooks: [{name: a, url: "https://a/", kind: hmac, secretFile: secret}]`)
	}
	for content, want := range map[string]string{
		"":                                  "has no hooks",
		"hooks: {":                          "read hooks in ",
		entry("kind", "kinds"):              `unknown field "kinds"`,
		entry("hmac", "md5"):                "kind is not hmac, standard, gitlab or bearer",
		entry("hmac", "standard"):           "a secret that begins with whsec_ needs kind standard",
		entry(": secret", ": key"):          "a secret that begins with whsec_ needs kind standard",
		entry("name: a", "name: a/b"):       "the name is empty or has a / or %",
		entry("https://a/", "ftp://a"):      "url is not the start of a URL",
		entry("https://a/", "https://a/?b"): "url is not the start of a URL",
		entry("secretFile: secret", "secretFile: none"):                      "no such file",
		entry("]", `, {name: a, url: b, kind: bearer, secretFile: secret}]`): "the name appears twice",
	} {
		if _, err := hooks.Load(write(t, content, secret)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", content, err)
		}
	}
	for secret, want := range map[string]string{
		"short": "fewer than 16 bytes", "whsec_%": "the secret after whsec_: illegal base64",
	} {
		kind := map[bool]string{true: "standard", false: "hmac"}[strings.HasPrefix(secret, "whsec_")]
		if _, err := hooks.Load(write(t, entry("hmac", kind), secret)); err == nil || !strings.Contains(err.Error(), want) {
			t.Error(err)
		}
	}
}
