package get_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"

	"github.com/kv8s/curl-me-that/fetcher/internal/get"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
)

const foreign = "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nforeign"

// surplus are the bytes that a server sends after a complete response.
var surplus = []string{
	foreign,
	"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n",
	"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n",
	"the rest of the body" + foreign,
	"HTTP/1.1 103 Early Hints\r\n\r\n" + foreign + foreign,
	"\r\n\r\nHTTP/1.1 304 Not Modified\r\nETag: \"foreign\"\r\n\r\n",
}

// serveSurplus responds on /N with N, and on /bad/N with more than a response, at various times.
func serveSurplus(ctx context.Context, conn net.Conn) {
	requests := bufio.NewReader(conn)
	for ctx.Err() == nil {
		request, err := http.ReadRequest(requests)
		if err != nil {
			return
		}
		path, bad := strings.CutPrefix(request.URL.Path, "/bad")
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\n"+length(len(path))+path)
		if number, err := strconv.Atoi(path[1:]); err == nil && bad {
			late := time.Duration([]int{0, 1, 5, 20, 50}[number/len(surplus)%5]) * time.Millisecond
			time.AfterFunc(late, func() { _, _ = io.WriteString(conn, surplus[number%len(surplus)]) })
		}
	}
}

// serveTunnels is a proxy that connects every host to the port.
func serveTunnels(port int) func(context.Context, net.Conn) { return openTunnels(port, http.StatusOK) }

// openTunnels responds with a status to requests for a tunnel.
func openTunnels(port, status int) func(context.Context, net.Conn) {
	return func(_ context.Context, conn net.Conn) {
		requests := bufio.NewReader(conn)
		request, err := http.ReadRequest(requests)
		if err != nil {
			return
		}
		host, err := net.Dial("tcp", hostPort("127.0.0.1", port))
		if err != nil {
			return
		}
		defer func() { _ = host.Close() }()
		if request.Method == http.MethodConnect {
			_, _ = fmt.Fprintf(conn, "HTTP/1.1 %d Whatever\r\n\r\n", status)
		} else {
			_ = request.Write(host)
		}
		go func() {
			_, _ = io.Copy(host, requests)
			_ = host.Close()
		}()
		_, _ = io.Copy(conn, host)
	}
}

var _ = Describe("a connection", func() {
	// GETS=10000 makes it a load.
	gets, _ := strconv.Atoi(os.Getenv("GETS"))
	DescribeTable("carries no byte of one URL into another key", func(ctx SpecContext, encrypted, proxied bool) {
		ca := newAuthority()
		cfg.Timeout, cfg.HeaderTimeout, cfg.TLSTimeout = time.Minute, time.Minute, time.Minute // on a busy machine
		cfg.CABundle = writeFile("ca.pem", ca.pem())
		handle, scheme := serveSurplus, "http://"
		if encrypted {
			handle, scheme = secured(&tls.Config{
				MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{ca.issue(host, time.Now().Add(time.Hour))},
			}, handle), "https://"
		}
		port := serve(handle)
		if proxied {
			cfg.Proxy = "http://" + hostPort("127.0.0.1", serve(serveTunnels(port)))
		}
		client := newClient()
		var all errgroup.Group
		all.SetLimit(32)
		for n := range max(gets, 400) {
			path := fmt.Sprintf("/%d", n%400)
			namespace := fmt.Sprint("team-", n%4)
			all.Go(func() error {
				response, err := client.Do(ctx, get.Request{Namespace: namespace, URL: scheme + hostPort(host, port) + path})
				if err == nil && string(response.Body) != path {
					err = fmt.Errorf("%s got %q", path, response.Body)
				}
				return err
			})
			if n%4 == 0 {
				all.Go(func() error {
					url := fmt.Sprintf("%s%s/bad/%d", scheme, hostPort(host, port), n/4)
					_, _ = client.Do(ctx, get.Request{Namespace: "other", URL: url})
					return nil
				})
			}
		}
		Expect(all.Wait()).To(Succeed())
	},
		Entry("without TLS", false, false),
		Entry("with TLS", true, false),
		Entry("without TLS, through a proxy", false, true),
		Entry("with TLS, through a proxy", true, true),
	)

	DescribeTable("with TLS must end by close_notify if that ends the body:",
		func(ctx SpecContext, proxied bool, text, body string, notify bool) {
			ca := newAuthority()
			cfg.CABundle = writeFile("ca.pem", ca.pem())
			server := &tls.Config{
				MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{ca.issue(host, time.Now().Add(time.Hour))},
			}
			port := serve(secured(server, func(ctx context.Context, conn net.Conn) {
				say(text)(ctx, conn)
				if inner, ok := conn.(*tls.Conn); ok && !notify {
					_ = inner.NetConn().Close()
				}
			}))
			if proxied {
				cfg.Proxy = "http://" + hostPort("127.0.0.1", serve(serveTunnels(port)))
			}
			response, err := newClient().Do(ctx, get.Request{URL: httpsURL(port)})
			if body != "" {
				Expect(err).NotTo(HaveOccurred())
				Expect(string(response.Body)).To(Equal(body))
				return
			}
			Expect(errorOf(response, err).Detail).To(Equal(v1.FailureDetail_FAILURE_DETAIL_CUT_OFF))
		},
		Entry("with it", false, ok+"\r\nhello", "hello", true),
		Entry("without it", false, ok+"\r\nhel", "", false),
		Entry("with it, by HTTP/1.0", false, "HTTP/1.0 200 OK\r\n\r\nhello", "hello", true),
		Entry("without it, by HTTP/1.0", false, "HTTP/1.0 200 OK\r\n\r\nhel", "", false),
		Entry("without it, and without a body", false, ok+"\r\n", "", false),
		Entry("without it, in the headers", false, ok, "", false),
		Entry("without it, through a proxy", true, ok+"\r\nhel", "", false),
		Entry("with it, through a proxy", true, ok+"\r\nhello", "hello", true),
		Entry("not after a length", false, ok+length(5)+"hello", "hello", false),
		Entry("not after the last chunk", false,
			ok+"Transfer-Encoding: chunked\r\n\r\n"+chunk("hello")+"0\r\n\r\n", "hello", false),
		Entry("with it, in chunks", false, ok+"Transfer-Encoding: chunked\r\n\r\n"+chunk("hello"), "", true),
	)
})

var _ = DescribeTable("a response that is not HTTP/1.1 is explained:", func(ctx SpecContext, text, sentence string) {
	client := newClient()
	err := errorOf(client.Do(ctx, get.Request{URL: urlOf(serve(say(text)), "/")}))
	Expect(err).To(MatchError(HavePrefix(host + sentence)))
},
	Entry("HTTP/2 settings", h2Settings, " does not speak HTTP/1.1, perhaps only HTTP/2; "),
	Entry("HTTP/2 settings with values", "\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x64"+h2GoAway,
		" does not speak HTTP/1.1, perhaps only HTTP/2; "),
	Entry("chunked twice", ok+"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n"+chunk("x")+chunk(""),
		" sent a Transfer-Encoding other than a single chunked"),
	Entry("chunked twice in one line", ok+"Transfer-Encoding: chunked, chunked\r\n\r\n"+chunk("x")+chunk(""),
		" sent a Transfer-Encoding other than a single chunked"),
	Entry("identity", ok+"Transfer-Encoding: identity\r\n"+length(1)+"x",
		" sent a Transfer-Encoding other than a single chunked"),
	Entry("gzip", ok+"Transfer-Encoding: gzip\r\n\r\nx", " sent a Transfer-Encoding other than a single chunked"),
	Entry("gzip in chunks, by HTTP/1.0", "HTTP/1.0 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n"+chunk(""),
		" sent a Transfer-Encoding other than a single chunked"),
	Entry("a TLS alert", "\x15\x03\x01\x00\x02\x02\x28", " sent an unusable response: not valid HTTP"),
	Entry("the greeting of another protocol", "SSH-2.0-OpenSSH_9\r\n", " sent an unusable response: not valid HTTP"),
	Entry("half a version", "HTTP/1", " sent only part of the response, or closed the connection before its end"),
	Entry("part of a file, as a 200", ok+"Content-Range: bytes 0-4/6\r\n"+length(5)+"hello",
		" sent only part of the response, or closed the connection before its end"),
)
