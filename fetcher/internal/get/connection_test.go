package get_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"errors"
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

	"github.com/kv8s/curl-me-that/fetcher/internal/egress"
	"github.com/kv8s/curl-me-that/fetcher/internal/get"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
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
func serveTunnels(port int) func(context.Context, net.Conn) {
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
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n")
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
		cfg := get.Defaults()
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
		client := newClient(cfg, newGate(egress.Config{}), get.Deps{})
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
			cfg := shortLimits()
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
			response, err := newClient(cfg, newGate(egress.Config{}), get.Deps{}).Do(ctx, get.Request{URL: httpsURL(port)})
			if body != "" {
				Expect(err).NotTo(HaveOccurred())
				Expect(string(response.Body)).To(Equal(body))
				return
			}
			Expect(failed(response, err).Detail).To(Equal(v1.FailureDetail_FAILURE_DETAIL_CUT_OFF))
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
	client := newClient(shortLimits(), newGate(egress.Config{}), get.Deps{})
	err := failed(client.Do(ctx, get.Request{URL: urlOf(serve(say(text)), "/")}))
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
)

func gzipped(text string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = io.WriteString(w, text)
	_ = w.Close()
	return b.String()
}

var _ = Describe("a body with a Content-Encoding", func() {
	send := func(ctx context.Context, coding, body string) (get.Response, error) {
		client := newClient(shortLimits(), newGate(egress.Config{}), get.Deps{})
		text := "HTTP/1.1 200 OK\r\nContent-Encoding: " + strings.ReplaceAll(coding, "|", "\r\nContent-Encoding: ") + "\r\n"
		return client.Do(ctx, get.Request{URL: urlOf(serve(say(text+length(len(body))+body)), "/")})
	}
	once := gzipped("hello")

	DescribeTable("is decoded, or is what it is:", func(ctx SpecContext, coding, body, want string) {
		response := must(send(ctx, coding, body))
		Expect(string(response.Body)).To(Equal(want))
		Expect(response.SHA256).To(Equal(pipeline.Digest([]byte(want))))
	},
		Entry("gzip", "gzip", once, "hello"),
		Entry("x-gzip", "X-GZip", once, "hello"),
		Entry("identity and gzip", "identity, gzip", once, "hello"),
		Entry("gzip and identity, in two lines", "gzip|identity", once, "hello"),
		Entry("gzip, and an empty name", ", gzip", once, "hello"),
		Entry("gzip with a parameter", "gzip;q=1.0", once, "hello"),
		Entry("gzip in two members", "gzip", once+once, "hellohello"),
		Entry("gzip twice", "gzip, gzip", gzipped(once), "hello"),
		Entry("gzip of a .gz file: only the outer layer", "gzip", gzipped(once), once),
		Entry("gzip of the limit", "gzip", gzipped(strings.Repeat("x", limit)), strings.Repeat("x", limit)),
		Entry("gzip of nothing", "gzip", gzipped(""), ""),
		Entry("gzip without a byte", "gzip", "", ""),
		Entry("gzip of aws-chunked", "aws-chunked, gzip", once, "hello"),
		Entry("none", "none", "hello", "hello"),
		Entry("empty", "", "hello", "hello"),
		Entry("identity", "Identity", "hello", "hello"),
		Entry("aws-chunked", "aws-chunked", "hello", "hello"),
		Entry("a character set", "UTF-8", "hello", "hello"),
		Entry("binary", "binary", "hello", "hello"),
	)

	DescribeTable("fails:", func(ctx SpecContext, coding, body string, detail v1.FailureDetail) {
		Expect(failed(send(ctx, coding, body)).Detail).To(Equal(detail))
	},
		Entry("br", "br", "\x8b\x00\x80\x03", v1.FailureDetail_FAILURE_DETAIL_CONTENT_ENCODING),
		Entry("zstd", "zstd", "\x28\xb5\x2f\xfd", v1.FailureDetail_FAILURE_DETAIL_CONTENT_ENCODING),
		Entry("deflate", "Deflate", "x", v1.FailureDetail_FAILURE_DETAIL_CONTENT_ENCODING),
		Entry("compress", "x-compress", "x", v1.FailureDetail_FAILURE_DETAIL_CONTENT_ENCODING),
		Entry("gzip and br", "gzip, br", once, v1.FailureDetail_FAILURE_DETAIL_CONTENT_ENCODING),
		Entry("br and gzip, in two lines", "br|gzip", once, v1.FailureDetail_FAILURE_DETAIL_CONTENT_ENCODING),
		Entry("gzip very often", strings.Repeat("gzip,", 1000), once, v1.FailureDetail_FAILURE_DETAIL_CONTENT_ENCODING),
		Entry("plain text as gzip", "gzip", "hello", v1.FailureDetail_FAILURE_DETAIL_BAD_GZIP),
		Entry("long plain text as gzip", "gzip", strings.Repeat("hello", 99), v1.FailureDetail_FAILURE_DETAIL_BAD_GZIP),
		Entry("gzip and garbage", "gzip", once+"garbage, too long", v1.FailureDetail_FAILURE_DETAIL_BAD_GZIP),
		Entry("gzip with a wrong checksum", "gzip", once[:len(once)-8]+"wrong"+once[len(once)-3:],
			v1.FailureDetail_FAILURE_DETAIL_BAD_GZIP),
		Entry("gzip with a broken block", "gzip", once[:10]+"\xff\xff\xff"+once[13:],
			v1.FailureDetail_FAILURE_DETAIL_BAD_GZIP),
		Entry("half of gzip", "gzip", once[:len(once)/2], v1.FailureDetail_FAILURE_DETAIL_CUT_OFF),
		Entry("gzip without its checksum", "gzip", once[:len(once)-8], v1.FailureDetail_FAILURE_DETAIL_CUT_OFF),
		Entry("gzip with half a member more", "gzip", once+once[:12], v1.FailureDetail_FAILURE_DETAIL_CUT_OFF),
	)

	It("is limited by its decoded size", func(ctx SpecContext) {
		_, err := send(ctx, "gzip", gzipped(strings.Repeat("x", limit+1)))
		var failure *get.Error
		Expect(errors.As(err, &failure)).To(BeTrue())
		Expect(failure.Limit).To(BeEquivalentTo(limit))
	})
})
