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

// secret is the text that hostile servers send wherever they can. No error may repeat it.
const secret = "s3rv3r-t3xt"

// hostile is a hostile server and the expected outcome.
type hostile struct {
	name   string
	handle func(context.Context, net.Conn)
	// class is the expected failure; unspecified means success.
	class  v1.FailureClass
	status int
	body   string
}

// Short names of the classes.
const (
	well             = v1.FailureClass_FAILURE_CLASS_UNSPECIFIED
	addressDenied    = v1.FailureClass_FAILURE_CLASS_ADDRESS_DENIED
	dnsFailed        = v1.FailureClass_FAILURE_CLASS_DNS_FAILED
	connectFailed    = v1.FailureClass_FAILURE_CLASS_CONNECT_FAILED
	tlsFailed        = v1.FailureClass_FAILURE_CLASS_TLS_FAILED
	timedOut         = v1.FailureClass_FAILURE_CLASS_TIMEOUT
	tooManyRedirects = v1.FailureClass_FAILURE_CLASS_TOO_MANY_REDIRECTS
	badStatus        = v1.FailureClass_FAILURE_CLASS_BAD_STATUS
	bodyTooLarge     = v1.FailureClass_FAILURE_CLASS_BODY_TOO_LARGE
	badResponse      = v1.FailureClass_FAILURE_CLASS_BAD_RESPONSE
)

// limit is the body limit of the specs.
const limit = 100_000

const ok = "HTTP/1.1 200 OK\r\nX-Text: " + secret + "\r\n"

func hostileServers() []hostile {
	var all []hostile
	for _, group := range [][]hostile{
		hostileBodies(), hostileLengths(), hostileHeaders(), hostileStatuses(), hostileRedirects(), hostileConnections(),
	} {
		all = append(all, group...)
	}
	return all
}

func serves(name, body string, handle func(context.Context, net.Conn)) hostile {
	return hostile{name: name, body: body, handle: handle}
}

func fails(name string, class v1.FailureClass, status int, handle func(context.Context, net.Conn)) hostile {
	return hostile{name: name, class: class, status: status, handle: handle}
}

func length(n int) string { return fmt.Sprintf("Content-Length: %d\r\n\r\n", n) }

func chunk(s string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(s), s) }

func hostileBodies() []hostile {
	const chunked = ok + "Transfer-Encoding: chunked\r\n\r\n"
	full := strings.Repeat("x", limit)
	odd := "\xff\xfe\x00\x1b[31m\u202e\xc3("
	return []hostile{
		serves("empty 200", "", say(ok+length(0))),
		serves("empty 200 without a length", "", say(ok+"Connection: close\r\n\r\n")),
		serves("limit exactly", full, say(ok+length(limit)+full)),
		serves("limit exactly, chunked", full, say(chunked+chunk(full)+"0\r\n\r\n")),
		serves("limit exactly, until close", full, say(ok+"Connection: close\r\n\r\n"+full)),
		fails("limit plus one", bodyTooLarge, 0, say(ok+length(limit+1)+full+"x")),
		fails("limit plus one, chunked", bodyTooLarge, 0, say(chunked+chunk(full+"x")+"0\r\n\r\n")),
		fails("limit plus one, until close", bodyTooLarge, 0, say(ok+"Connection: close\r\n\r\n"+full+"x")),
		fails("endless body, fast", bodyTooLarge, 0, repeat(ok+"\r\n", secret)),
		fails("endless chunks, fast", bodyTooLarge, 0, repeat(chunked, chunk(secret))),
		fails("endless body, slow", timedOut, 0, slowly(ok+"\r\n")),
		fails("truncated body", badResponse, 0, say(ok+length(100)+secret)),
		fails("truncated chunk", badResponse, 0, say(chunked+"64\r\n"+secret)),
		fails("truncated chunks", badResponse, 0, say(chunked+chunk(secret))),
		fails("truncated trailer", badResponse, 0, say(chunked+chunk(secret)+"0\r\nX-Tra")),
		fails("invalid chunk size", badResponse, 0, sayAndHold(chunked+secret+"\r\n")),
		fails("chunk size of 2^64", badResponse, 0, say(chunked+"10000000000000000\r\n"+secret)),
		fails("chunk-extension flood", badResponse, 0, repeat(chunked, "1;"+strings.Repeat("e", 2000)+"\r\nx\r\n")),
		fails("endless chunk extension", badResponse, 0, repeat(chunked+"1;", secret)),
		fails("trailer flood", badResponse, 0, repeat(chunked+chunk("x")+"0\r\n", "X-Trailer: "+secret+"\r\n")),
		serves("invalid UTF-8, NUL and escape bytes", odd, say(ok+length(len(odd))+odd)),
		fails("gzip bomb", bodyTooLarge, 0, say(ok+"Content-Encoding: gzip\r\n"+length(len(bomb()))+bomb())),
		serves("undeclared gzip bomb", bomb(), say(ok+length(len(bomb()))+bomb())),
		fails("gzip as transfer coding", badResponse, 0,
			say(ok+"Transfer-Encoding: gzip, chunked\r\n\r\n"+chunk(bomb())+"0\r\n\r\n")),
		serves("pipelined second response", "hello",
			say(ok+length(5)+"hello"+ok+length(len(secret))+secret)),
	}
}

func hostileLengths() []hostile {
	return []hostile{
		fails("huge Content-Length", bodyTooLarge, 0,
			sayAndHold(ok+"Content-Length: 9223372036854775807\r\n\r\nx")),
		fails("Content-Length beyond 64 bits", badResponse, 0,
			sayAndHold(ok+"Content-Length: 99999999999999999999\r\n\r\nx")),
		fails("negative Content-Length", badResponse, 0, sayAndHold(ok+"Content-Length: -1\r\n\r\nx")),
		fails("Content-Length with a sign", badResponse, 0, sayAndHold(ok+"Content-Length: +5\r\n\r\nhello")),
		fails("empty Content-Length", badResponse, 0, sayAndHold(ok+"Content-Length: \r\n\r\nx")),
		fails("conflicting Content-Lengths", badResponse, 0,
			sayAndHold(ok+"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!")),
	}
}

func hostileHeaders() []hostile {
	return []hostile{
		fails("one header of 2 MiB", badResponse, 0, repeat(ok+"X-Big: ", strings.Repeat("x", 2<<20))),
		serves("headers below the limit", "x",
			say(ok+"X-Big: "+strings.Repeat("x", 60<<10)+"\r\n"+length(1)+"x")),
		fails("headers above the limit", badResponse, 0,
			say(ok+"X-Big: "+strings.Repeat("x", 66<<10)+"\r\n"+length(1)+"x")),
		fails("endless small headers", badResponse, 0, repeat(ok, "X-Small: "+secret+"\r\n")),
		fails("endless folded header", badResponse, 0, repeat(ok, " "+secret+"\r\n")),
		fails("endless 103s", badResponse, 0, repeat("", "HTTP/1.1 103 Early Hints\r\nLink: <"+secret+">\r\n\r\n")),
		fails("endless 100s", badResponse, 0, repeat("", "HTTP/1.1 100 Continue\r\n\r\n")),
		fails("slow 103s", timedOut, 0, slowly("HTTP/1.1 103 Early Hints\r\n")),
		fails("endless status line", badResponse, 0, repeat("HTTP/1.1 200 ", secret)),
		fails("header without a colon", badResponse, 0, say("HTTP/1.1 200 OK\r\n"+secret+"\r\n\r\nx")),
		fails("header with a NUL", badResponse, 0, say("HTTP/1.1 200 OK\r\nX-\x00: "+secret+"\r\n\r\nx")),
		fails("not HTTP", badResponse, 0, say("220 "+secret+" ESMTP\r\n")),
		fails("HTTP/0.9", badResponse, 0, say("<html>\n"+secret+"</html>")),
		fails("close in the status line", badResponse, 0, say("HTTP/1.1 2")),
		serves("HTTP/2.0 in text", "x", say("HTTP/2.0 200 OK\r\n"+length(1)+"x")),
		serves("HTTP/1.0 with chunks", "hello",
			say("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"+chunk("hello")+chunk(""))),
		serves("HTTP/1.0 with a length", "hello", say("HTTP/1.0 200 OK\r\n"+length(5)+"hello and more")),
		serves("HTTP/1.0 until close", "hello", say("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n\r\nhello")),
		fails("invalid status", badResponse, 0, say("HTTP/1.1 2x0 OK\r\n"+length(1)+"x")),
	}
}

func hostileStatuses() []hostile {
	var all []hostile
	for _, status := range []int{
		101, 201, 202, 203, 204, 205, 206, 226, 300, 304, 305, 400, 401, 404, 407, 408, 418, 425,
		429, 451, 500, 502, 503, 999,
	} {
		text := fmt.Sprintf("HTTP/1.1 %d %s\r\nRetry-After: 1000000000000\r\n", status, secret)
		body := length(len(secret)) + secret
		if status == 101 || status == 204 || status == 304 {
			body = "\r\n"
		}
		all = append(all, fails(fmt.Sprint("status ", status), badStatus, status, say(text+body)))
	}
	return append(all,
		fails("404 with an endless body", badStatus, 404, repeat("HTTP/1.1 404 No\r\n\r\n", secret)),
		fails("500 without its body", badStatus, 500, sayAndHold("HTTP/1.1 500 No\r\n"+length(100))),
		fails("500 with a broken body", badStatus, 500,
			say("HTTP/1.1 500 No\r\nTransfer-Encoding: chunked\r\n\r\nzz")),
		fails("503 with gzip", badStatus, 503,
			say("HTTP/1.1 503 No\r\nContent-Encoding: gzip\r\n"+length(4)+"\x1f\x8b\x08\x00")),
		fails("101 with endless data", badStatus, 101,
			repeat("HTTP/1.1 101 Yes\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n", secret)),
	)
}

func redirectTo(location string) func(context.Context, net.Conn) {
	return say("HTTP/1.1 302 Found\r\nLocation: " + location + "\r\n" + length(0))
}

func hostileRedirects() []hostile {
	return []hostile{
		fails("redirect to self", tooManyRedirects, 302, redirectTo("/"+secret)),
		fails("redirect to a denied address", addressDenied, 0, redirectTo("http://127.0.0.2/")),
		fails("redirect to the metadata service", addressDenied, 0,
			redirectTo("http://169.254.169.254/latest/meta-data/")),
		fails("redirect to an odd spelling of it", addressDenied, 0, redirectTo("http://0xa9fea9fe/")),
		fails("redirect to file:", addressDenied, 0, redirectTo("file:///etc/passwd")),
		fails("redirect to data:", addressDenied, 0, redirectTo("data:text/plain,"+secret)),
		fails("redirect with credentials", addressDenied, 0,
			redirectTo("http://"+secret+":pw@data.example.com/")),
		fails("redirect without Location", badResponse, 302, say("HTTP/1.1 302 Found\r\n"+length(0))),
		fails("redirect with an empty Location", badResponse, 302, redirectTo("")),
		fails("redirect with a broken Location", badResponse, 302, redirectTo("http://["+secret+"/")),
		fails("redirect with a broken port", badResponse, 302, redirectTo("http://data.example.com:x/")),
		fails("redirect to port 22", addressDenied, 0, redirectTo("http://93.184.216.34:22/")),
		fails("redirect to an endless URL", badResponse, 302, redirectTo("/"+strings.Repeat("x", 30_000))),
		fails("redirect without its body", tooManyRedirects, 302,
			sayAndHold("HTTP/1.1 302 Found\r\nLocation: /"+secret+"\r\n"+length(100))),
	}
}

func hostileConnections() []hostile {
	return []hostile{
		fails("close at once", connectFailed, 0, func(context.Context, net.Conn) {}),
		fails("close after the request", connectFailed, 0, say("")),
		fails("close in the headers", badResponse, 0, say(ok)),
		fails("close in a header", badResponse, 0, say("HTTP/1.1 200 OK\r\nX-Te")),
		fails("reset at once", connectFailed, 0, reset("")),
		fails("reset in mid-body", badResponse, 0, reset(ok+length(100)+secret)),
		fails("silence after accept", timedOut, 0, hold),
		fails("silence after the request", timedOut, 0, sayAndHold("")),
		fails("silence in the headers", timedOut, 0, sayAndHold("HTTP/1.1 200 OK\r\nX-Te")),
		fails("silence after the headers", timedOut, 0, sayAndHold(ok+length(100))),
		fails("silence in the body", timedOut, 0, sayAndHold(ok+length(100)+secret)),
		fails("speaks first", badResponse, 0, sendFirst("SSH-2.0-"+secret+"\r\n")),
		serves("answers first", "hello", sendFirst(ok+"Connection: close\r\n"+length(5)+"hello")),
		fails("h2 settings and GOAWAY", badResponse, 0, sendFirst(h2Settings+h2GoAway)),
		fails("h2 REFUSED_STREAM", badResponse, 0, sendFirst(h2Settings+h2Refused)),
		fails("h2 PING flood", badResponse, 0, flood(h2Settings, h2Ping)),
		fails("h2 empty DATA flood", badResponse, 0, flood(h2Settings, h2EmptyData)),
	}
}

// Frames of HTTP/2 (RFC 9113 section 4.1).
const (
	h2Settings  = "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	h2GoAway    = "\x00\x00\x08\x07\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
	h2Refused   = "\x00\x00\x04\x03\x00\x00\x00\x00\x01\x00\x00\x00\x07"
	h2Ping      = "\x00\x00\x08\x06\x00\x00\x00\x00\x00pingpong"
	h2EmptyData = "\x00\x00\x00\x00\x00\x00\x00\x00\x01"
)

func hold(ctx context.Context, _ net.Conn) { <-ctx.Done() }

// sendFirst sends before it reads.
func sendFirst(text string) func(context.Context, net.Conn) {
	return func(ctx context.Context, conn net.Conn) {
		_, _ = io.WriteString(conn, text)
		<-ctx.Done()
	}
}

// flood sends before it reads, and never stops.
func flood(text, words string) func(context.Context, net.Conn) {
	many := strings.Repeat(words, 1+(8<<10)/len(words))
	return func(_ context.Context, conn net.Conn) {
		_, err := io.WriteString(conn, text)
		for err == nil {
			_, err = io.WriteString(conn, many)
		}
	}
}

// slowly sends text, and then one byte at a time.
func slowly(text string) func(context.Context, net.Conn) {
	return func(ctx context.Context, conn net.Conn) {
		readRequest(conn)
		_, err := io.WriteString(conn, text)
		beat := time.NewTicker(200 * time.Millisecond)
		defer beat.Stop()
		for err == nil {
			select {
			case <-ctx.Done():
				return
			case <-beat.C:
				_, err = io.WriteString(conn, "x")
			}
		}
	}
}

// reset sends a response and ends with RST instead of FIN.
func reset(text string) func(context.Context, net.Conn) {
	return func(_ context.Context, conn net.Conn) {
		readRequest(conn)
		_, _ = io.WriteString(conn, text)
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
	}
}

// bomb is 10 MiB compressed to 10 KiB.
func bomb() string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write(make([]byte, 10<<20))
	_ = w.Close()
	return b.String()
}
