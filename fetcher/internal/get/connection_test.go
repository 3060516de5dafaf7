package get_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
	"sync"
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
	client := newClient(shortLimits(), newGate(egress.Config{}), get.Deps{})
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
	Entry("half a version", "HTTP/1", " closed the connection before the response was complete"),
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

	const refused, bad, cut = v1.FailureDetail_FAILURE_DETAIL_CONTENT_ENCODING, v1.FailureDetail_FAILURE_DETAIL_BAD_GZIP,
		v1.FailureDetail_FAILURE_DETAIL_CUT_OFF
	DescribeTable("is decoded, is what it is, or fails:", func(ctx SpecContext, coding, body string, want any) {
		response, err := send(ctx, coding, body)
		if detail, fails := want.(v1.FailureDetail); fails {
			Expect(errorOf(response, err).Detail).To(Equal(detail))
			return
		}
		Expect(err).NotTo(HaveOccurred())
		Expect(string(response.Body)).To(Equal(want))
		Expect(response.SHA256).To(Equal(pipeline.Digest(response.Body)))
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

		Entry("br", "br", "\x8b\x00\x80\x03", refused),
		Entry("zstd", "zstd", "\x28\xb5\x2f\xfd", refused),
		Entry("deflate", "Deflate", "x", refused),
		Entry("compress", "x-compress", "x", refused),
		Entry("gzip and br", "gzip, br", once, refused),
		Entry("br and gzip, in two lines", "br|gzip", once, refused),
		Entry("gzip very often", strings.Repeat("gzip,", 1000), once, refused),
		Entry("plain text as gzip", "gzip", "hello", bad),
		Entry("long plain text as gzip", "gzip", strings.Repeat("hello", 99), bad),
		Entry("gzip and garbage", "gzip", once+"garbage, too long", bad),
		Entry("gzip with a wrong checksum", "gzip", once[:len(once)-8]+"wrong"+once[len(once)-3:], bad),
		Entry("gzip with a broken block", "gzip", once[:10]+"\xff\xff\xff"+once[13:], bad),
		Entry("half of gzip", "gzip", once[:len(once)/2], cut),
		Entry("gzip without its checksum", "gzip", once[:len(once)-8], cut),
		Entry("gzip with half a member more", "gzip", once+once[:12], cut),
	)

	It("is limited by its decoded size", func(ctx SpecContext) {
		Expect(errorOf(send(ctx, "gzip", gzipped(strings.Repeat("x", limit+1)))).Limit).To(BeEquivalentTo(limit))
	})
})

// check compares the outcome of one GET with the expectation.
func (h hostile) check(response get.Response, err error) error {
	if h.class == well {
		digest := sha256.Sum256([]byte(h.body))
		switch {
		case err != nil:
			return fmt.Errorf("%s: %w (%w)", h.name, err, errors.Unwrap(err))
		case response.NotModified || string(response.Body) != h.body:
			return fmt.Errorf("%s: gave %d bytes", h.name, len(response.Body))
		case response.SHA256 != hex.EncodeToString(digest[:]):
			return fmt.Errorf("%s: has digest %s", h.name, response.SHA256)
		}
		return nil
	}
	var failure *get.Error
	if !errors.As(err, &failure) {
		return fmt.Errorf("%s: gave %w", h.name, err)
	}
	if failure.Class != h.class || failure.StatusCode != h.status || failure.Host != host {
		return fmt.Errorf("%s: gave %s, status %d, host %q: %w (%w)",
			h.name, failure.Class, failure.StatusCode, failure.Host, err, failure.Unwrap())
	}
	return nil
}

var _ = Describe("the client", func() {
	for _, h := range hostileServers() {
		It("survives "+h.name, func(ctx SpecContext) {
			client := newClient(shortLimits(), newGate(egress.Config{}), get.Deps{})
			port := serve(h.handle)

			start := time.Now()
			response, err := client.Do(ctx, get.Request{URL: urlOf(port, "/path?query="+secret)})

			Expect(h.check(response, err)).To(Succeed())
			Expect(time.Since(start)).To(BeNumerically("<", 10*time.Second))
			if err != nil {
				Expect(err.Error()).To(MatchRegexp(`^[ A-Za-z0-9:,/()-]*\bdata\.example\.com\b[ A-Za-z0-9:,./;()-]*$`))
				Expect(err.Error()).NotTo(ContainSubstring(secret))
				Expect(err.Error()).NotTo(ContainSubstring("127.0.0"))
				Expect(err.Error()).NotTo(ContainSubstring(fmt.Sprint(port)))
			}
			if h.class == badStatus {
				failure := new(get.Error)
				Expect(errors.As(err, &failure)).To(BeTrue())
				Expect(len(failure.Snippet)).To(BeNumerically("<=", get.MaxSnippet))
				Expect(failure.RetryAfter).To(Or(BeZero(), Equal(time.Duration(math.MaxInt64))))
			}
		})
	}

	DescribeTable("waits for a hostile server no longer than for headers:",
		func(ctx SpecContext, handle func(context.Context, net.Conn)) {
			cfg := get.Defaults()
			cfg.HeaderTimeout = 200 * time.Millisecond
			client := newClient(cfg, newGate(egress.Config{}), get.Deps{})

			start := time.Now()
			_, err := client.Do(ctx, get.Request{URL: urlOf(serve(handle), "/")})

			Expect(err).To(HaveOccurred())
			Expect(time.Since(start)).To(BeNumerically("<", cfg.Timeout/2))
		},
		Entry("silence instead of headers", sayAndHold("")),
		Entry("silence instead of the body of an error", sayAndHold("HTTP/1.1 500 No\r\n"+length(100))),
	)

	It("survives 32 concurrent hostile servers within 64 MiB of heap", func(ctx SpecContext) {
		defer debug.SetMemoryLimit(debug.SetMemoryLimit(64 << 20))
		// With so many connections on a busy machine, a slow server must not count as a silent
		// one.
		cfg := shortLimits()
		cfg.Timeout, cfg.HeaderTimeout = 6*time.Second, 4*time.Second
		client := newClient(cfg, newGate(egress.Config{}), get.Deps{})
		servers := hostileServers()
		ports := make([]int, len(servers))
		for i, h := range servers {
			ports[i] = serve(h.handle)
		}
		peak := watchHeap()

		var all errgroup.Group
		all.SetLimit(32)
		for range 3 {
			for i, h := range servers {
				all.Go(func() error {
					return h.check(client.Do(ctx, get.Request{URL: urlOf(ports[i], "/")}))
				})
			}
		}

		Expect(all.Wait()).To(Succeed())
		AddReportEntry("peak of heap in MiB", peak()>>20)
		Expect(peak()).To(BeNumerically("<", 64<<20))
	})

	It("survives 32 concurrent bodies of 1,000,000 bytes within 64 MiB of heap", func(ctx SpecContext) {
		defer debug.SetMemoryLimit(debug.SetMemoryLimit(64 << 20))
		cfg := get.Defaults()
		client := newClient(cfg, newGate(egress.Config{}), get.Deps{})
		words := make([]byte, 10_000)
		port := serveHTTP(func(w http.ResponseWriter, _ *http.Request) {
			for range 100 {
				_, _ = w.Write(words)
			}
		})
		peak := watchHeap()

		var all errgroup.Group
		for range 32 {
			all.Go(func() error {
				for range 4 {
					response, err := client.Do(ctx, get.Request{URL: urlOf(port, "/")})
					if err != nil || len(response.Body) != 1_000_000 {
						return fmt.Errorf("got %d bytes: %w", len(response.Body), err)
					}
				}
				return nil
			})
		}

		Expect(all.Wait()).To(Succeed())
		AddReportEntry("peak of heap in MiB", peak()>>20)
		Expect(peak()).To(BeNumerically("<", 64<<20))
	})
})

// watchHeap samples the heap size, including objects that are not yet swept, until the returned
// function is called.
func watchHeap() (peak func() uint64) {
	quit, done := make(chan struct{}), make(chan uint64)
	go func() {
		beat := time.NewTicker(2 * time.Millisecond)
		defer beat.Stop()
		sample, most := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}, uint64(0)
		for {
			select {
			case <-quit:
				done <- most
				return
			case <-beat.C:
				metrics.Read(sample)
				most = max(most, sample[0].Value.Uint64())
			}
		}
	}()
	peak = sync.OnceValue(func() uint64 { close(quit); return <-done })
	DeferCleanup(func() { peak() })
	return peak
}
