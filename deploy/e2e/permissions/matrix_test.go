package permissions_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/conf"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/process"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// cell tells whether an identity may use a subject.
type cell struct {
	operation, what, subject, identity string
	may                                bool
}

// columns are the identities in permissions.csv.
var columns = []string{"watcher", "fetcher", "writer", "setup", "viewer", "replayer", "admin"}

// cells reads permissions.csv.
func cells() []cell {
	GinkgoHelper()
	file := suitetest.Must(os.Open(filepath.Join(shipped, "permissions.csv")))
	defer file.Close()
	rows := suitetest.Must(csv.NewReader(file).ReadAll())
	var all []cell
	for _, row := range rows[1:] {
		allowed := strings.Split(row[3], ", ")
		Expect(row[0]).To(BeElementOf("publish", "subscribe"))
		Expect(append(slices.Clone(columns), "nobody")).To(ContainElements(allowed), row[1])
		for _, identity := range columns {
			all = append(all, cell{
				operation: row[0], what: row[1], subject: row[2], identity: identity, may: slices.Contains(allowed, identity),
			})
		}
	}
	Expect(len(all)).To(BeNumerically(">", 400), "cells of the table")
	return all
}

// tried uses the subject of a cell and reports whether the server allowed it.
func tried(nc *nats.Conn, c cell) bool {
	GinkgoHelper()
	if c.operation == "subscribe" {
		sub := suitetest.Must(nc.SubscribeSync(c.subject))
		defer sub.Unsubscribe() //nolint:errcheck // a denied one is gone
	} else {
		Expect(nc.Publish(c.subject, nil)).To(Succeed())
	}
	Expect(nc.Flush()).To(Succeed())
	// A denial arrives before the response to the flush.
	err := nc.LastError()
	return err == nil || !strings.Contains(err.Error(), `"`+c.subject+`"`)
}

var _ = It("The permissions match permissions.csv cell by cell", func(ctx SpecContext) {
	b := start(ctx, overTLS)
	suitetest.Must(pipeline.Ensure(ctx, b.jetStream(), pipeline.Topology{}))
	connections := map[string]*nats.Conn{}
	for _, c := range cells() {
		nc := connections[c.identity]
		if nc == nil {
			nc = b.connect(c.identity)
			connections[c.identity] = nc
		}
		Expect(tried(nc, c)).To(Equal(c.may), "may %s %s %s (%s)", c.identity, c.operation, c.subject, c.what)
	}
})

// grant is a pattern that accounts.conf grants to an identity.
type grant struct{ identity, pattern string }

// granted returns the patterns that identities may publish to. They include imports, because an account needs
// one for each subject that it publishes to.
func (c configured) granted(b *broker) (publish []grant) {
	GinkgoHelper()
	for name, a := range c.Accounts {
		for _, u := range a.Users {
			identity := b.identity(u.NKey)
			if name == c.SystemAccount || identity == specs {
				continue
			}
			for _, subject := range u.Permissions.Publish.Allow {
				publish = append(publish, grant{identity, subject})
			}
			for _, i := range a.Imports {
				if i.Service.Account != "" {
					publish = append(publish, grant{identity, string(i.Service.Subject)})
				}
			}
		}
	}
	return publish
}

// listeners returns the subjects that the server subscribes to in the account of the streams.
func (b *broker) listeners(ctx SpecContext) (all []string) {
	GinkgoHelper()
	var found struct {
		Subscriptions []struct{ Subject string } `json:"subscriptions_list"`
	}
	text := monitored(ctx, b.servers[0].MonitorURL(), "/subsz?subs=1&acc=CURL&limit=1000")
	Expect(json.Unmarshal([]byte(text), &found)).To(Succeed())
	for _, s := range found.Subscriptions {
		// The API has a single subscription, and each grant names one of its requests.
		if s.Subject != "$JS.API.>" {
			all = append(all, s.Subject)
		}
	}
	Expect(all).To(ContainElements("$JS.ACK.CURL_RESULTS.writer.*.*.*.*.*", "curl.want.>"))
	return all
}

var _ = It("Patterns in accounts.conf match one subscription of the server each", func(ctx SpecContext) {
	b := start(ctx, plain)
	suitetest.Must(pipeline.Ensure(ctx, b.jetStream(), pipeline.Topology{HistoryBytes: 16 << 20}))
	publish := parsed(b.accounts()).granted(b)
	Expect(len(publish)).To(BeNumerically(">", 100))
	listeners := b.listeners(ctx)
	for _, p := range publish {
		var reached []string
		for _, subject := range listeners {
			if server.SubjectsCollide(p.pattern, subject) {
				reached = append(reached, subject)
			}
		}
		if strings.ContainsAny(p.pattern, "*>") {
			Expect(reached).To(HaveLen(1), "%s may publish %s", p.identity, p.pattern)
		}
		Expect(len(reached)).To(BeNumerically("<=", 1), "%s may publish %s", p.identity, p.pattern)
	}
})

// closing is how long a server may take to close a connection with an unknown protocol.
const closing = 30 * time.Second

// monitored returns the response of the monitoring port.
func monitored(ctx context.Context, base, path string) string {
	GinkgoHelper()
	text, code, err := process.Get(ctx, base+path)
	Expect(err).NotTo(HaveOccurred())
	// A single server has no Raft state, and one of three servers may still be catching up.
	Expect(code).To(BeElementOf(http.StatusOK, http.StatusNotFound, http.StatusServiceUnavailable), "%s: %s", path, text)
	return text
}

// varz has the fields of /varz about listeners.
type varz struct {
	Cluster struct {
		Port int `json:"cluster_port"`
	} `json:"cluster"`
	Gateway, Leaf, MQTT, Websocket struct{ Port int }
	Loaded                         time.Time `json:"config_load_time"`
}

func (b *broker) varz(ctx context.Context, n int) (v varz) {
	GinkgoHelper()
	Expect(json.Unmarshal([]byte(monitored(ctx, b.servers[n].MonitorURL(), "/varz")), &v)).To(Succeed())
	return v
}

// trusted returns the TLS configuration for connections other than NATS clients.
func (b *broker) trusted() *tls.Config {
	GinkgoHelper()
	if !b.tls {
		return nil
	}
	text := suitetest.Must(os.ReadFile(b.ca()))
	roots := x509.NewCertPool()
	Expect(roots.AppendCertsFromPEM(text)).To(BeTrue())
	return &tls.Config{RootCAs: roots, ServerName: "localhost", MinVersion: tls.VersionTLS12}
}

// said sends a text and returns everything that the server sends until it closes the connection.
func said(conn net.Conn, first string) string {
	GinkgoHelper()
	defer conn.Close()
	Expect(conn.SetDeadline(time.Now().Add(closing))).To(Succeed())
	_, _ = conn.Write([]byte(first)) // the server may have closed it
	text, err := io.ReadAll(conn)
	Expect(os.IsTimeout(err)).To(BeFalse(), "the server keeps the connection open after sending %q", text)
	return string(text)
}

var _ = Describe("NATS", func() {
	onEach(map[string]form{
		"on one server over TLS": overTLS, "on three servers": three, "on the three servers of the chart": threeOfChart,
	}, func(f form, b func() *broker) {
		It("has no port for leaf nodes, MQTT, WebSocket and gateways", func(ctx SpecContext) {
			v := b().varz(ctx, 0)
			Expect([]int{v.Leaf.Port, v.MQTT.Port, v.Websocket.Port, v.Gateway.Port}).To(HaveEach(0))
		})

		It("accepts no other server without a route certificate", func(ctx SpecContext) {
			v := b().varz(ctx, 0)
			if f.servers == 1 {
				Expect(v.Cluster.Port).To(BeZero(), "one server has no port for others")
				return
			}
			address := net.JoinHostPort("127.0.0.1", strconv.Itoa(v.Cluster.Port))
			plain := suitetest.Must(net.Dial("tcp", address))
			Expect(said(plain, "CONNECT {}\r\n")).NotTo(ContainSubstring("INFO"))
			conn := suitetest.Must(net.Dial("tcp", address))
			Expect(said(tls.Client(conn, b().trusted()), "CONNECT {}\r\n")).NotTo(ContainSubstring("INFO"))
		})

		It("shows no message and no seed on the monitoring port", func(ctx SpecContext) {
			newAttacker(ctx, b(), "viewer")
			for _, server := range b().servers {
				for _, path := range []string{
					"/", "/varz", "/connz?subs=detail&auth=1&state=all", "/routez?subs=detail", "/gatewayz?accs=1", "/leafz?subs=1",
					"/subsz?subs=1", "/accountz?acc=CURL", "/accstatz?unused=1",
					"/jsz?accounts=1&streams=1&consumers=1&config=1&raft=1",
					"/healthz", "/ipqueuesz?all=1", "/raftz", "/stacksz", "/debug/vars",
				} {
					text := monitored(ctx, server.MonitorURL(), path)
					Expect(text).NotTo(ContainSubstring("SECRET"), path)
					for _, identity := range append(slices.Clone(columns), "sys") {
						Expect(text).NotTo(ContainSubstring(strings.TrimSpace(read(b().seed(identity)))), path)
					}
				}
			}
		})

		It("lets nobody connect without an identity", func() {
			Expect(world.ErrorOf(nats.Connect(b().URL(), b().trust()))).To(MatchError(nats.ErrAuthorization))
		})

		It("lets only the identity sys use the system account", func(ctx SpecContext) {
			loaded := b().varz(ctx, 0).Loaded
			system := b().connect("sys")
			Expect(tried(system, cell{operation: "subscribe", subject: "$SYS.>"})).To(BeTrue())
			answer := suitetest.Must(system.Request("$SYS.REQ.SERVER.PING.IDZ", nil, responseTimeout))
			var found struct{ Server struct{ ID string } }
			Expect(json.Unmarshal(answer.Data, &found)).To(Succeed())
			server := "$SYS.REQ.SERVER." + found.Server.ID + "."
			for _, identity := range columns {
				nc := b().connect(identity)
				for _, subject := range []string{
					"$SYS.REQ.SERVER.PING", "$SYS.REQ.SERVER.PING.VARZ", "$SYS.REQ.SERVER.PING.CONNZ", "$SYS.REQ.ACCOUNT.PING.CONNZ",
					"$SYS.REQ.ACCOUNT.CURL.JSZ", "$SYS.REQ.ACCOUNT.CURL.INFO", "$SYS.REQ.CLAIMS.UPDATE", "$SYS.DEBUG.SUBSCRIBERS",
					server + "RELOAD", server + "KICK", server + "LDM", "$JS.API.ACCOUNT.PURGE.CURL", "$JS.API.SERVER.REMOVE",
					"$JS.API.ACCOUNT.STREAM.MOVE.CURL.CURL_REQUESTS", "$JS.API.META.LEADER.STEPDOWN",
				} {
					Expect(tried(nc, cell{operation: "publish", subject: subject})).To(BeFalse(), "%s asks %s", identity, subject)
				}
				Expect(tried(nc, cell{operation: "subscribe", subject: "$SYS.ACCOUNT.>"})).To(BeFalse(), identity)
			}
			Expect(b().varz(ctx, 0).Loaded).To(Equal(loaded))
		})

		It("lets sys remove all streams, but shows it no message", func(ctx SpecContext) {
			s := newAttacker(ctx, b(), "viewer")
			system := b().connect("sys")
			messages := make(chan *nats.Msg, 1<<10)
			suitetest.Must(system.ChanSubscribe(">", messages))
			answer := suitetest.Must(system.Request("$JS.API.STREAM.MSG.GET.CURL_RESULTS",
				[]byte(`{"last_by_subj":"curl.result.content.default.canary.key"}`), responseTimeout))
			Expect(string(answer.Data)).To(ContainSubstring("JetStream not enabled for account"))
			// Servers of a cluster copy this message to each other.
			suitetest.Must(s.js.Publish(ctx, "curl.result.content.default.later.key", []byte("SECRET-BODY")))
			suitetest.Must(system.Request("$JS.API.ACCOUNT.PURGE.CURL", nil, responseTimeout))
			Eventually(ctx, func() (names []string, err error) {
				list := s.js.StreamNames(ctx)
				for name := range list.Name() {
					names = append(names, name)
				}
				return names, list.Err()
			}).WithTimeout(recreateTimeout).Should(BeEmpty())
			Expect(system.Flush()).To(Succeed())
			for len(messages) > 0 {
				Expect(string((<-messages).Data)).NotTo(ContainSubstring("SECRET"))
			}
		})
	})
})

// configured is the content of accounts.conf.
type configured struct {
	SystemAccount string                       `json:"system_account"`
	Accounts      map[string]configuredAccount `json:"accounts"`
}

type configuredAccount struct {
	JetStream struct {
		MaxMemory int64 `json:"max_memory"`
		MaxFile   int64 `json:"max_file"`
	} `json:"jetstream"`
	Users   []configuredUser `json:"users"`
	Exports []struct {
		Service  jwt.Subject `json:"service"`
		Stream   jwt.Subject `json:"stream"`
		Response string      `json:"response"`
	} `json:"exports"`
	Imports []struct {
		Service imported            `json:"service"`
		Stream  imported            `json:"stream"`
		To      jwt.RenamingSubject `json:"to"`
	} `json:"imports"`
}

type configuredUser struct {
	NKey        string `json:"nkey"`
	Permissions struct {
		Publish   jwt.Permission `json:"publish"`
		Subscribe jwt.Permission `json:"subscribe"`
	} `json:"permissions"`
}

// named returns the publish permissions of a user whom the server knows by name instead of by key.
func (u configuredUser) named(name string) jwt.Permission {
	by := u.Permissions.Publish
	by.Allow = slices.Clone(by.Allow)
	for i, subject := range by.Allow {
		by.Allow[i] = strings.Replace(subject, u.NKey, name, 1)
	}
	return by
}

type imported struct {
	Account string      `json:"account"`
	Subject jwt.Subject `json:"subject"`
}

// accounts returns the path of accounts.conf.
func (b *broker) accounts() string { return filepath.Join(b.dir, "accounts.conf") }

// parsed reads accounts.conf. It fails on settings that JWTs do not support.
func parsed(file string) (c configured) {
	GinkgoHelper()
	fields := suitetest.Must(conf.ParseFile(file))
	text := suitetest.Must(json.Marshal(map[string]any{
		"system_account": fields["system_account"], "accounts": fields["accounts"],
	}))
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	Expect(decoder.Decode(&c)).To(Succeed())
	return c
}

func public(key nkeys.KeyPair) string {
	GinkgoHelper()
	return suitetest.Must(key.PublicKey())
}

// specs is the name of the spec's own user.
const specs = "spec"

// identity returns the identity with a public key.
func (b *broker) identity(nkey string) string {
	GinkgoHelper()
	if nkey == public(b.root) {
		return specs
	}
	seeds := suitetest.Must(filepath.Glob(b.seed("*")))
	for _, file := range seeds {
		if public(suitetest.Must(nkeys.FromSeed(seedOf(file)))) == nkey {
			return strings.TrimSuffix(filepath.Base(file), ".nk")
		}
	}
	Fail("no seed for " + nkey)
	return ""
}

func seedOf(file string) []byte {
	GinkgoHelper()
	return []byte(strings.TrimSpace(read(file)))
}

// commands returns the nsc commands that create the same accounts and users.
func (c configured) commands(b *broker) string {
	GinkgoHelper()
	var text strings.Builder
	for _, name := range c.sorted() {
		a := c.Accounts[name]
		fmt.Fprintf(&text, "\nnsc add account %s\n", name)
		if a.JetStream.MaxFile != 0 {
			fmt.Fprintf(&text, "nsc edit account %s --js-mem-storage %d --js-disk-storage %d\n", name, a.JetStream.MaxMemory,
				a.JetStream.MaxFile)
		}
		a.commandsOf(name, &text)
		for _, u := range a.Users {
			if identity := b.identity(u.NKey); identity != specs {
				u.commandOf(name, identity, &text)
			}
		}
	}
	return text.String()
}

// sorted returns the names of the accounts, those with exports before those that import them. It leaves out the
// system account, which every operator has.
func (c configured) sorted() []string {
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(c.Accounts)),
		func(name string) bool { return name == c.SystemAccount })
	slices.SortStableFunc(names, func(a, b string) int { return len(c.Accounts[b].Exports) - len(c.Accounts[a].Exports) })
	return names
}

func (a configuredAccount) commandsOf(name string, text io.Writer) {
	for _, e := range a.Exports {
		switch {
		case e.Stream != "":
			fmt.Fprintf(text, "nsc add export --account %s --subject '%s'\n", name, e.Stream)
		case e.Response == "stream":
			fmt.Fprintf(text, "nsc add export --account %s --service --subject '%s' --response-type Stream\n", name, e.Service)
		default:
			fmt.Fprintf(text, "nsc add export --account %s --service --subject '%s'\n", name, e.Service)
		}
	}
	for _, i := range a.Imports {
		if i.Stream.Account != "" {
			fmt.Fprintf(text, "nsc add import --account %s --src-account %s --remote-subject '%s' --local-subject '%s'\n",
				name, i.Stream.Account, i.Stream.Subject, i.To)
			continue
		}
		fmt.Fprintf(text, "nsc add import --account %s --src-account %s --service --remote-subject '%s'\n", name,
			i.Service.Account, i.Service.Subject)
	}
}

func (u configuredUser) commandOf(account, name string, text io.Writer) {
	fmt.Fprintf(text, "nsc add user --account %s --name %s", account, name)
	for _, subject := range u.named(name).Allow {
		fmt.Fprintf(text, " \\\n  --allow-pub '%s'", subject)
	}
	for _, subject := range u.Permissions.Subscribe.Allow {
		fmt.Fprintf(text, " \\\n  --allow-sub '%s'", subject)
	}
	fmt.Fprintln(text)
}

// shippedCommands is the file with the nsc commands.
const shippedCommands = "../../nats/nsc.sh"

var _ = It("The commands in nsc.sh create the accounts and users of accounts.conf", func(ctx SpecContext) {
	b := start(ctx, plain)
	commands := parsed(b.accounts()).commands(b)
	if os.Getenv("UPDATE_NSC") != "" {
		head, _, _ := strings.Cut(read(shippedCommands), "\n\n")
		Expect(os.WriteFile(shippedCommands, []byte(head+"\n"+commands), 0o755)).To(Succeed())
	}
	Expect(read(shippedCommands)).To(HaveSuffix("\n" + commands))
})
