package permissions_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/process"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
)

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
