package acceptance_test

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/origin"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/process"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/proto/headerfile"
)

// secrets has the value of each kind of credential, and the OAuth 2.0 token.
var secrets = map[string]string{
	"header": "hidden-in-a-header", "bearer": "hidden-in-a-file", "team": "hidden-in-the-secret-of-a-team",
	"oauth": "hidden-token", "client": "hidden-client-secret", "cookie": "hidden-cookie",
}

// credentials is a world with a credential of each kind, and all text that a person can read there.
type credentials struct {
	*world.World
	secure *origin.Server
	// dir has the files of the fetcher, and release is the namespace of the compiled Secret.
	dir, release string
	clientKey    string
	services     []*world.Service

	mu       sync.Mutex
	received map[string]string // headers and client certificate by path
	text     map[string]string // by its source
}

func newCredentials(ctx context.Context) *credentials {
	GinkgoHelper()
	c := &credentials{dir: GinkgoT().TempDir(), received: map[string]string{}, text: map[string]string{}}
	// The server and the client share a certificate, which has two names.
	made := GinkgoT().TempDir()
	create := []string{"identities", "--out=" + made, "--tls-host=the-client,localhost"}
	Expect(exec.CommandContext(ctx, env.Program("curlctl"), create...).Run()).To(Succeed())
	for name, as := range map[string]string{"ca.crt": "ca.pem", "tls.crt": "client.crt", "tls.key": "client.key"} {
		c.put(as, string(suitetest.Must(os.ReadFile(filepath.Join(made, name)))))
	}
	key := filepath.Join(c.dir, "client.key")
	pair := suitetest.Must(tls.LoadX509KeyPair(filepath.Join(c.dir, "client.crt"), key))
	c.clientKey = strings.Split(string(suitetest.Must(os.ReadFile(key))), "\n")[1]
	c.secure = origin.StartTLS(&tls.Config{
		Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12,
	}, c.guard)
	DeferCleanup(c.secure.Close)
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // an incomplete batch is sent again
		c.add("traces", string(body))
	}))
	DeferCleanup(collector.Close)
	c.World = env.World(ctx, world.Options{Without: world.Services(), Env: []string{
		"OTEL_EXPORTER_OTLP_ENDPOINT=" + strings.Replace(collector.URL, "127.0.0.1", "localhost", 1),
		"OTEL_BSP_SCHEDULE_DELAY=200",
	}})
	c.Trust(c.secure)
	c.release = c.Cluster.Namespace(ctx)

	c.put("token", secrets["bearer"])
	c.put("client-secret", secrets["client"])
	oauth := "oauth2: {tokenURL: \"https://" + c.secure.Address() + "/%s\", clientID: me, clientSecretFile: client-secret}"
	c.put("headers.yaml", c.entry("header", "headers: {X-Api-Key: "+secrets["header"]+"}")+
		c.entry("bearer", "bearerFile: token")+
		c.entry("certificate", "clientCertificate: {certFile: client.crt, keyFile: client.key}")+
		c.entry("oauth", fmt.Sprintf(oauth, "token"))+c.entry("denied", fmt.Sprintf(oauth, "echo")))
	c.secure.Page("/token").With("Content-Type", "application/json").
		Says(`{"token_type":"bearer","expires_in":3600,"access_token":"` + secrets["oauth"] + `"}`)
	return c
}

// guard records the credentials of each request. The token URL /echo repeats the client secret.
func (c *credentials) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, password, _ := r.BasicAuth()
		password += r.PostFormValue("client_secret") // an OAuth client tries this second
		all := fmt.Sprint(r.Header, password)
		for _, presented := range r.TLS.PeerCertificates {
			all += presented.Subject.CommonName
		}
		c.mu.Lock()
		c.received[r.URL.Path] = all
		c.mu.Unlock()
		if r.URL.Path == "/echo" {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = fmt.Fprintf(w, `{"error":"invalid_client","error_description":%q}`, password)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// carried returns the credentials of the last request for a path.
func (c *credentials) carried(path string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.received[path]
}

// entry returns an entry of the header file for a path.
func (c *credentials) entry(path, credential string) string {
	return fmt.Sprintf("- {host: localhost, ports: [%d], namespaces: [%q], pathPrefix: /%s, %s}\n", c.secure.Port(),
		c.Namespace, path, credential)
}

// put replaces a file of the fetcher atomically.
func (c *credentials) put(name, content string) {
	GinkgoHelper()
	next := filepath.Join(GinkgoT().TempDir(), "next")
	Expect(os.WriteFile(next, []byte(content), 0o600)).To(Succeed())
	Expect(os.Rename(next, filepath.Join(c.dir, name))).To(Succeed())
}

// compile creates a valid and an invalid Secret of a team, and puts the file that keeper compiles where a
// fetcher mounts it.
func (c *credentials) compile(ctx context.Context) {
	GinkgoHelper()
	host := "https://" + c.secure.Address()
	c.Cluster.Credential(ctx, c.release, "compiled", host, nil)
	c.Cluster.Credential(ctx, c.Namespace, "rules", host+"/team", map[string]string{"bearerToken": secrets["team"]})
	c.Cluster.Credential(ctx, c.Namespace, "mistake", host+"/other", map[string]string{"header.Cookie": secrets["cookie"]})
	c.services = append(c.services, c.Launch(ctx, world.Keeper, "--credentials="+c.release+"/compiled",
		"--credentials-from="+c.Namespace))
	Eventually(ctx, func() (string, error) {
		s, err := c.Cluster.Client.CoreV1().Secrets(c.release).Get(ctx, "compiled", metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		c.put("team.json", string(s.Data[headerfile.TeamKey]))
		return string(s.Data[headerfile.TeamKey]), nil
	}).Should(ContainSubstring(secrets["team"]))
}

func (c *credentials) add(source, text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.text[source] += text
}

// shouldHide checks that no source contains a value, in plain or in base64.
func (c *credentials) shouldHide(name, value string) {
	GinkgoHelper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for source, text := range c.text {
		for _, written := range []string{value, base64.StdEncoding.EncodeToString([]byte(value))} {
			Expect(strings.Contains(text, written)).To(BeFalse(), "%s is in %s", name, source)
		}
	}
}

// readServices collects logs and metrics.
func (c *credentials) readServices(ctx context.Context) {
	GinkgoHelper()
	for _, s := range c.services {
		metrics, code, err := process.Get(ctx, "http://"+s.Address+"/metrics")
		Expect(err).NotTo(HaveOccurred())
		Expect(code).To(Equal(http.StatusOK))
		c.add("metrics of "+s.Name, metrics)
		c.add("log of "+s.Name, s.Log.String())
	}
}

// readCluster collects ConfigMaps and Events. It returns the names of the Secrets with the credential of the
// team.
func (c *credentials) readCluster(ctx context.Context) (holders []string) {
	GinkgoHelper()
	core := c.Cluster.Client.CoreV1()
	for _, namespace := range []string{c.Namespace, c.release} {
		maps := suitetest.Must(core.ConfigMaps(namespace).List(ctx, metav1.ListOptions{}))
		events := suitetest.Must(core.Events(namespace).List(ctx, metav1.ListOptions{}))
		text := suitetest.Must(json.Marshal([]any{maps, events}))
		c.add("ConfigMaps and Events", string(text))
		all := suitetest.Must(core.Secrets(namespace).List(ctx, metav1.ListOptions{}))
		for _, s := range all.Items {
			if strings.Contains(fmt.Sprint(s.StringData)+fmt.Sprintf("%s", s.Data), secrets["team"]) {
				holders = append(holders, s.Name)
			}
		}
	}
	return holders
}

// readTerminal collects the output of commands.
func (c *credentials) readTerminal(ctx context.Context) {
	GinkgoHelper()
	files := []string{
		process.AllowLoopback, "--header-file=" + filepath.Join(c.dir, "headers.yaml"),
		"--tenant-header-file=" + filepath.Join(c.dir, "team.json"),
	}
	for _, command := range []string{
		"check " + c.Namespace + "/team", "status", "status " + c.Namespace + "/team", "wants -o wide", "failing -o wide",
		"failures -o json", "wants -o json", "doctor",
	} {
		args := append(strings.Fields(command), "--kubeconfig="+c.Cluster.Kubeconfig)
		if args[0] == "check" {
			args = append(args, files...)
		} else {
			args = append(args, "--nats-url="+c.Broker())
		}
		out, _ := exec.CommandContext(ctx, c.Program("curlctl"), args...).CombinedOutput() // 7 if it finds problems
		Expect(out).NotTo(BeEmpty(), args[0])
		c.add("curlctl "+args[0], string(out))
	}
	Expect(c.text["curlctl failures"]).To(ContainSubstring("/team/refused"))
}

// readStreams collects all messages of all streams.
func (c *credentials) readStreams(ctx context.Context) {
	GinkgoHelper()
	for info := range c.JetStream.ListStreams(ctx).Info() {
		stream := suitetest.Must(c.JetStream.Stream(ctx, info.Config.Name))
		for sequence := max(1, info.State.FirstSeq); sequence <= info.State.LastSeq; sequence++ {
			m, err := stream.GetMsg(ctx, sequence)
			if errors.Is(err, jetstream.ErrMsgNotFound) {
				continue
			}
			Expect(err).NotTo(HaveOccurred())
			c.add("stream "+info.Config.Name, fmt.Sprintln(m.Subject, m.Header, string(m.Data)))
		}
	}
	Expect(c.text).To(HaveKey("stream CURL_FAILURES"))
}

// readConsole collects the pages of the console: each object of the spec, and one page of each set of filters. Other
// suites fill the same cluster, and a page for each of their objects would take most of the time of the spec.
func (c *credentials) readConsole(ctx context.Context) {
	GinkgoHelper()
	p, address := c.Console(ctx, "--nats-url="+c.Broker(), "--kubeconfig="+c.Cluster.Kubeconfig)
	base := regexp.MustCompile(`^http://[^/]+`).FindString(address)
	jar := suitetest.Must(cookiejar.New(nil))
	person, links := &http.Client{Jar: jar}, regexp.MustCompile(`href="(/[^"#]*)`)
	values, theirs := regexp.MustCompile(`=[^&]*`), regexp.MustCompile(`^/(assets/|objects/[^/]+/)`)
	found := map[string]bool{}
	for paths := []string{strings.TrimPrefix(address, base)}; len(paths) > 0; paths = paths[1:] {
		kind := values.ReplaceAllString(paths[0], "")
		if found[kind] || theirs.MatchString(kind) && !strings.HasPrefix(kind, "/objects/"+c.Namespace+"/") {
			continue
		}
		found[kind] = true
		response := suitetest.Must(person.Get(base + strings.ReplaceAll(paths[0], "&amp;", "&")))
		page, err := io.ReadAll(response.Body)
		Expect(errors.Join(err, response.Body.Close())).To(Succeed())
		c.add("console "+paths[0], string(page))
		for _, link := range links.FindAllStringSubmatch(string(page), -1) {
			paths = append(paths, link[1])
		}
	}
	c.add("console", p.Log.String())
	Expect(len(found)).To(BeNumerically(">", 5), "pages of the console")
}

var _ = Describe("Credentials of every kind", func() {
	It("are sent, and appear nowhere except in their Secrets and files", func(ctx SpecContext) {
		c := newCredentials(ctx)
		c.compile(ctx)
		fetcher := c.Launch(ctx, world.Fetcher, "--ca-bundle="+filepath.Join(c.dir, "ca.pem"),
			"--header-file="+filepath.Join(c.dir, "headers.yaml"), "--tenant-header-file="+filepath.Join(c.dir, "team.json"))
		c.services = append(c.services, fetcher, c.Launch(ctx, world.Watcher), c.Launch(ctx, world.Writer))
		for _, s := range c.services {
			s.EventuallyReady(ctx)
		}

		for name, carried := range map[string]string{
			"header": secrets["header"], "bearer": secrets["bearer"], "certificate": "the-client",
			"oauth": secrets["oauth"], "team": secrets["team"],
		} {
			good := c.secure.Page("/" + name + "/good").Says("body of " + name)
			refused := c.secure.Page("/" + name + "/refused").Fails(http.StatusForbidden)
			cm := c.Create(ctx, name, world.Asking("good="+good.Bare()+" refused="+refused.URL())) // no scheme means HTTPS
			cm.EventuallyHasData(ctx, "good", "body of "+name)
			cm.EventuallyReports(ctx, "refused", "BadStatus")
			Expect(c.carried("/" + name + "/good")).To(ContainSubstring(carried))
			Expect(c.carried("/" + name + "/refused")).To(ContainSubstring(carried))
		}
		c.Create(ctx, "denied", world.Asking("good="+c.secure.Page("/denied/good").URL())).
			EventuallyReports(ctx, "good", "CredentialsFailed")
		Expect(c.carried("/echo")).To(ContainSubstring(secrets["client"]))

		By("a header file with a mistake")
		c.put("headers.yaml", c.entry("header", secrets["header"]+": X-Api-Key"))
		Eventually(ctx, func() []string { return fetcher.Log.Matching("keeping the last valid content") }).
			ShouldNot(BeEmpty())
		c.put("headers.yaml", c.entry("header", "headers: {X-Api-Key: "+secrets["header"]+"}"))

		c.readServices(ctx)
		Expect(c.readCluster(ctx)).To(ConsistOf("rules", "compiled"))
		Expect(c.text["ConfigMaps and Events"]).To(ContainSubstring("header.Cookie may not be set"))
		c.readStreams(ctx)
		c.readConsole(ctx)
		c.readTerminal(ctx)
		Eventually(ctx, func() string { c.mu.Lock(); defer c.mu.Unlock(); return c.text["traces"] }).
			Should(And(ContainSubstring("curl-me-that-fetcher"), ContainSubstring("curl-me-that-writer")))
		for name, value := range secrets {
			c.shouldHide("the value of "+name, value)
		}
		c.shouldHide("the client key", c.clientKey)
		c.Unfinished() // the token is retried
	})
})
