package get_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"regexp"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"

	"github.com/kv8s/curl-me-that/fetcher/internal/get"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/failure"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

var _ = Describe("the client", func() {
	DescribeTable("waits for a hostile server no longer than for headers:",
		func(ctx SpecContext, handle func(context.Context, net.Conn)) {
			cfg = get.Defaults()
			cfg.HeaderTimeout = 200 * time.Millisecond
			client := newClient()

			start := time.Now()
			Expect(client.Do(ctx, get.Request{URL: urlOf(serve(handle), "/")})).Error().To(HaveOccurred())
			Expect(time.Since(start)).To(BeNumerically("<", cfg.Timeout/2))
		},
		Entry("silence instead of headers", sayAndHold("")),
		Entry("silence instead of the body of an error", sayAndHold("HTTP/1.1 500 No\r\n"+length(100))),
	)

	It("survives 32 concurrent hostile servers within 64 MiB of heap", func(ctx SpecContext) {
		defer debug.SetMemoryLimit(debug.SetMemoryLimit(64 << 20))
		// This many connections on a busy machine would make a slow server look silent.
		cfg.Timeout, cfg.HeaderTimeout = 6*time.Second, 4*time.Second
		client := newClient()
		servers := hostileServers()
		ports := make([]int, len(servers))
		for i, h := range servers {
			ports[i] = serve(h.handle)
		}
		peak := watchHeap()

		errs := make([]error, 3*len(servers))
		var all errgroup.Group
		all.SetLimit(32)
		for n := range errs {
			port, h := ports[n%len(ports)], servers[n%len(servers)]
			all.Go(func() error {
				began := time.Now()
				response, err := client.Do(ctx, get.Request{URL: urlOf(port, "/path?query="+secret)})
				if errs[n] = h.check(port, response, err); time.Since(began) > 10*time.Second {
					errs[n] = fmt.Errorf("%s: took %s", h.name, time.Since(began))
				}
				return nil
			})
		}

		Expect(all.Wait()).To(Succeed())
		Expect(errors.Join(errs...)).NotTo(HaveOccurred())
		AddReportEntry("peak of heap in MiB", peak()>>20)
		Expect(peak()).To(BeNumerically("<", 64<<20))
	})

	It("survives 32 concurrent bodies of 1,000,000 bytes within 64 MiB of heap", func(ctx SpecContext) {
		defer debug.SetMemoryLimit(debug.SetMemoryLimit(64 << 20))
		cfg = get.Defaults()
		client := newClient()
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

// watchHeap samples the heap size, including objects that are not yet swept, until the returned function is called.
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

// plainSentence matches an error without any text of a server or its address.
var plainSentence = regexp.MustCompile(`^[ A-Za-z0-9:,/()-]*\bdata\.example\.com\b[ A-Za-z0-9:,./;()-]*$`)

// check compares the outcome of one GET with the expectation.
func (h hostile) check(port int, response get.Response, err error) error {
	if h.class == failure.Unspecified {
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
	told := slices.ContainsFunc([]string{secret, "127.0.0", strconv.Itoa(port)}, func(text string) bool {
		return strings.Contains(err.Error(), text)
	})
	if told || !plainSentence.MatchString(err.Error()) {
		return fmt.Errorf("%s: is described as %w", h.name, err)
	}
	snippet, pause := len(failure.Snippet), failure.RetryAfter
	if snippet > pipeline.MaxSnippet || pause != 0 && pause != math.MaxInt64 {
		return fmt.Errorf("%s: gave a snippet of %d bytes and Retry-After %s", h.name, snippet, pause)
	}
	return nil
}

// hostile is a hostile server and the expected outcome.
type hostile struct {
	name   string
	handle func(context.Context, net.Conn)
	// class is the expected failure; unspecified means success.
	class  v1.FailureClass
	status int
	body   string
}

func hostileServers() []hostile {
	var all []hostile
	for _, group := range [][]hostile{
		hostileBodies(), hostileLengths(), hostileHeaders(), hostileStatuses(), hostileRedirects(), hostileConnections(),
	} {
		all = append(all, group...)
	}
	return all
}

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
		fails("limit plus one", failure.BodyTooLarge, 0, say(ok+length(limit+1)+full+"x")),
		fails("limit plus one, chunked", failure.BodyTooLarge, 0, say(chunked+chunk(full+"x")+"0\r\n\r\n")),
		fails("limit plus one, until close", failure.BodyTooLarge, 0, say(ok+"Connection: close\r\n\r\n"+full+"x")),
		fails("endless body, fast", failure.BodyTooLarge, 0, repeat(ok+"\r\n", secret)),
		fails("endless chunks, fast", failure.BodyTooLarge, 0, repeat(chunked, chunk(secret))),
		fails("endless body, slow", failure.Timeout, 0, slowly(ok+"\r\n")),
		fails("truncated body", failure.BadResponse, 0, say(ok+length(100)+secret)),
		fails("start of file, as a 200", failure.BadResponse, 0, say(ok+"Content-Range: bytes 0-4/6\r\n"+length(5)+"hello")),
		fails("start of file, as a 200, with an equals sign", failure.BadResponse, 0,
			say(ok+"Content-Range: bytes=0-4/6\r\n"+length(5)+"hello")),
		fails("end of file, as a 200", failure.BadResponse, 0, say(ok+"Content-Range: bytes 1-5/6\r\n"+length(5)+"ello!")),
		fails("end of file, in chunks", failure.BadResponse, 0,
			say(chunked[:len(chunked)-2]+"content-range: Bytes 1-5/6\r\n\r\n"+chunk("ello!")+chunk(""))),
		fails("parts of a file, as a 200", failure.BadResponse, 0,
			say(ok+"Content-Type: Multipart/ByteRanges; boundary=x\r\n"+length(5)+"--x--")),
		serves("whole file with its range", "hello", say(ok+"Content-Range: bytes 0-4/5\r\n"+length(5)+"hello")),
		serves("whole file with a wrong range", "hello", say(ok+"Content-Range: bytes 1-5/5\r\n"+length(5)+"hello")),
		serves("page of a list", "hello", say(ok+"Content-Range: items 0-9/500\r\n"+length(5)+"hello")),
		serves("part of an unknown size", "hello", say(ok+"Content-Range: bytes 0-4/*\r\n"+length(5)+"hello")),
		fails("truncated chunk", failure.BadResponse, 0, say(chunked+"64\r\n"+secret)),
		fails("truncated chunks", failure.BadResponse, 0, say(chunked+chunk(secret))),
		serves("long trailer and chunk extension", "hello",
			say(chunked+"5;x="+strings.Repeat("e", 4000)+"\r\nhello\r\n0\r\nX-Trailer: "+strings.Repeat("t", 4000)+"\r\n\r\n")),
		fails("truncated trailer", failure.BadResponse, 0, say(chunked+chunk(secret)+"0\r\nX-Tra")),
		fails("invalid chunk size", failure.BadResponse, 0, sayAndHold(chunked+secret+"\r\n")),
		fails("chunk size of 2^64", failure.BadResponse, 0, say(chunked+"10000000000000000\r\n"+secret)),
		fails("chunks, after a name with a blank", failure.BadResponse, 0,
			say(ok+"Transfer-Encoding : chunked\r\n\r\n"+chunk("x")+chunk(""))),
		fails("gzip, after a name with blanks", failure.BadResponse, 0,
			say(ok+"content-encoding  : gzip\r\n"+length(len(bomb()))+bomb())),
		fails("truncated body, after a name with a blank", failure.BadResponse, 0, say(ok+"Content-Length : 6\r\n\r\nhello")),
		fails("surplus, after a name with blanks", failure.BadResponse, 0, say(ok+"content-length  : 4\r\n\r\nhello")),
		fails("start of file, after a name with a blank", failure.BadResponse, 0,
			say(ok+"Content-Range : bytes 0-4/6\r\n"+length(5)+"hello")),
		serves("other names with a blank", "hello", say(ok+"Server : x\r\nContent-Length : 5\r\n\r\nhello")),
		fails("chunk-extension flood", failure.BadResponse, 0, repeat(chunked, "1;"+strings.Repeat("e", 2000)+"\r\nx\r\n")),
		fails("endless chunk extension", failure.BadResponse, 0, repeat(chunked+"1;", secret)),
		fails("trailer flood", failure.BadResponse, 0, repeat(chunked+chunk("x")+"0\r\n", "X-Trailer: "+secret+"\r\n")),
		serves("invalid UTF-8, NUL and escape bytes", odd, say(ok+length(len(odd))+odd)),
		fails("gzip bomb", failure.BodyTooLarge, 0, say(ok+"Content-Encoding: gzip\r\n"+length(len(bomb()))+bomb())),
		serves("undeclared gzip bomb", bomb(), say(ok+length(len(bomb()))+bomb())),
		fails("gzip as transfer coding", failure.BadResponse, 0,
			say(ok+"Transfer-Encoding: gzip, chunked\r\n\r\n"+chunk(bomb())+"0\r\n\r\n")),
		serves("pipelined second response", "hello",
			say(ok+length(5)+"hello"+ok+length(len(secret))+secret)),
	}
}

func hostileLengths() []hostile {
	return []hostile{
		fails("huge Content-Length", failure.BodyTooLarge, 0,
			sayAndHold(ok+"Content-Length: 9223372036854775807\r\n\r\nx")),
		fails("Content-Length beyond 64 bits", failure.BadResponse, 0,
			sayAndHold(ok+"Content-Length: 99999999999999999999\r\n\r\nx")),
		fails("negative Content-Length", failure.BadResponse, 0, sayAndHold(ok+"Content-Length: -1\r\n\r\nx")),
		fails("Content-Length with a sign", failure.BadResponse, 0, sayAndHold(ok+"Content-Length: +5\r\n\r\nhello")),
		fails("empty Content-Length", failure.BadResponse, 0, sayAndHold(ok+"Content-Length: \r\n\r\nx")),
		fails("conflicting Content-Lengths", failure.BadResponse, 0,
			sayAndHold(ok+"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!")),
	}
}

func hostileHeaders() []hostile {
	return []hostile{
		fails("one header of 2 MiB", failure.BadResponse, 0, repeat(ok+"X-Big: ", strings.Repeat("x", 2<<20))),
		serves("headers below the limit", "x",
			say(ok+"X-Big: "+strings.Repeat("x", 60<<10)+"\r\n"+length(1)+"x")),
		fails("headers above the limit", failure.BadResponse, 0,
			say(ok+"X-Big: "+strings.Repeat("x", 66<<10)+"\r\n"+length(1)+"x")),
		fails("endless small headers", failure.BadResponse, 0, repeat(ok, "X-Small: "+secret+"\r\n")),
		fails("endless folded header", failure.BadResponse, 0, repeat(ok, " "+secret+"\r\n")),
		fails("endless 103s", failure.BadResponse, 0, repeat("", "HTTP/1.1 103 Early Hints\r\nLink: <"+secret+">\r\n\r\n")),
		fails("endless 100s", failure.BadResponse, 0, repeat("", "HTTP/1.1 100 Continue\r\n\r\n")),
		fails("slow 103s", failure.Timeout, 0, slowly("HTTP/1.1 103 Early Hints\r\n")),
		fails("endless status line", failure.BadResponse, 0, repeat("HTTP/1.1 200 ", secret)),
		fails("header without a colon", failure.BadResponse, 0, say("HTTP/1.1 200 OK\r\n"+secret+"\r\n\r\nx")),
		fails("header with a NUL", failure.BadResponse, 0, say("HTTP/1.1 200 OK\r\nX-\x00: "+secret+"\r\n\r\nx")),
		fails("not HTTP", failure.BadResponse, 0, say("220 "+secret+" ESMTP\r\n")),
		fails("HTTP/0.9", failure.BadResponse, 0, say("<html>\n"+secret+"</html>")),
		fails("close in the status line", failure.BadResponse, 0, say("HTTP/1.1 2")),
		serves("HTTP/2.0 in text", "x", say("HTTP/2.0 200 OK\r\n"+length(1)+"x")),
		serves("HTTP/1.0 with chunks", "hello",
			say("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"+chunk("hello")+chunk(""))),
		serves("HTTP/0.9 in text with chunks", "hello",
			say("HTTP/0.9 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"+chunk("hello")+chunk(""))),
		serves("HTTP/1.0 with chunks, after interim responses", "hello",
			say("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.0 103 Early Hints\r\n\r\n"+
				"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"+chunk("hello")+chunk(""))),
		fails("no HTTP after an interim response", failure.BadResponse, 0, say("HTTP/1.1 100 Continue\r\n\r\n"+secret)),
		fails("silence after an interim response", failure.Timeout, 0, sayAndHold("HTTP/1.1 100 Continue\r\n\r\n")),
		serves("HTTP/1.0 with a length", "hello", say("HTTP/1.0 200 OK\r\n"+length(5)+"hello and more")),
		serves("HTTP/1.0 until close", "hello", say("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n\r\nhello")),
		fails("invalid status", failure.BadResponse, 0, say("HTTP/1.1 2x0 OK\r\n"+length(1)+"x")),
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
		all = append(all, fails(fmt.Sprint("status ", status), failure.BadStatus, status, say(text+body)))
	}
	return append(all,
		fails("404 with an endless body", failure.BadStatus, 404, repeat("HTTP/1.1 404 No\r\n\r\n", secret)),
		fails("500 without its body", failure.BadStatus, 500, sayAndHold("HTTP/1.1 500 No\r\n"+length(100))),
		fails("500 with a broken body", failure.BadStatus, 500,
			say("HTTP/1.1 500 No\r\nTransfer-Encoding: chunked\r\n\r\nzz")),
		fails("503 with gzip", failure.BadStatus, 503,
			say("HTTP/1.1 503 No\r\nContent-Encoding: gzip\r\n"+length(4)+"\x1f\x8b\x08\x00")),
		fails("101 with endless data", failure.BadStatus, 101,
			repeat("HTTP/1.1 101 Yes\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n", secret)),
	)
}

func hostileRedirects() []hostile {
	return []hostile{
		fails("redirect to self", failure.TooManyRedirects, 302, redirectTo("/"+secret)),
		fails("redirect to a denied address", failure.AddressDenied, 0, redirectTo("http://127.0.0.2/")),
		fails("redirect to the metadata service", failure.AddressDenied, 0,
			redirectTo("http://169.254.169.254/latest/meta-data/")),
		fails("redirect to an odd spelling of it", failure.AddressDenied, 0, redirectTo("http://0xa9fea9fe/")),
		fails("redirect to file:", failure.AddressDenied, 0, redirectTo("file:///etc/passwd")),
		fails("redirect to data:", failure.AddressDenied, 0, redirectTo("data:text/plain,"+secret)),
		fails("redirect with credentials", failure.AddressDenied, 0,
			redirectTo("http://"+secret+":pw@data.example.com/")),
		fails("redirect without Location", failure.BadResponse, 302, say("HTTP/1.1 302 Found\r\n"+length(0))),
		fails("redirect with two Locations", failure.BadResponse, 302, redirectTo("/a\r\nLocation: /b")),
		fails("redirect with the same Location twice", failure.TooManyRedirects, 302, redirectTo("/a\r\nLocation: /a")),
		fails("redirect with an empty Location", failure.BadResponse, 302, redirectTo("")),
		fails("redirect with a broken Location", failure.BadResponse, 302, redirectTo("http://["+secret+"/")),
		fails("redirect with a broken port", failure.BadResponse, 302, redirectTo("http://data.example.com:x/")),
		fails("redirect to port 22", failure.AddressDenied, 0, redirectTo("http://93.184.216.34:22/")),
		fails("redirect to an endless URL", failure.BadResponse, 302, redirectTo("/"+strings.Repeat("x", 30_000))),
		fails("redirect without its body", failure.TooManyRedirects, 302,
			sayAndHold("HTTP/1.1 302 Found\r\nLocation: /"+secret+"\r\n"+length(100))),
	}
}

func hostileConnections() []hostile {
	return []hostile{
		fails("close at once", failure.ConnectFailed, 0, func(context.Context, net.Conn) {}),
		fails("close after the request", failure.ConnectFailed, 0, say("")),
		fails("close in the headers", failure.BadResponse, 0, say(ok)),
		fails("close in a header", failure.BadResponse, 0, say("HTTP/1.1 200 OK\r\nX-Te")),
		fails("reset at once", failure.ConnectFailed, 0, reset("")),
		fails("reset in mid-body", failure.BadResponse, 0, reset(ok+length(100)+secret)),
		fails("silence after accept", failure.Timeout, 0, hold),
		fails("silence after the request", failure.Timeout, 0, sayAndHold("")),
		fails("silence in the headers", failure.Timeout, 0, sayAndHold("HTTP/1.1 200 OK\r\nX-Te")),
		fails("silence after the headers", failure.Timeout, 0, sayAndHold(ok+length(100))),
		fails("silence in the body", failure.Timeout, 0, sayAndHold(ok+length(100)+secret)),
		fails("speaks first", failure.BadResponse, 0, sendFirst("SSH-2.0-"+secret+"\r\n")),
		serves("answers first", "hello", sendFirst(ok+"Connection: close\r\n"+length(5)+"hello")),
		fails("h2 settings and GOAWAY", failure.BadResponse, 0, sendFirst(h2Settings+h2GoAway)),
		fails("h2 REFUSED_STREAM", failure.BadResponse, 0, sendFirst(h2Settings+h2Refused)),
		fails("h2 PING flood", failure.BadResponse, 0, flood(h2Settings, h2Ping)),
		fails("h2 empty DATA flood", failure.BadResponse, 0, flood(h2Settings, h2EmptyData)),
	}
}

// limit is the body limit of the specs.
const limit = 100_000

const ok = "HTTP/1.1 200 OK\r\nX-Text: " + secret + "\r\n"

func serves(name, body string, handle func(context.Context, net.Conn)) hostile {
	return hostile{name: name, body: body, handle: handle}
}

func fails(name string, class v1.FailureClass, status int, handle func(context.Context, net.Conn)) hostile {
	return hostile{name: name, class: class, status: status, handle: handle}
}

func length(n int) string { return fmt.Sprintf("Content-Length: %d\r\n\r\n", n) }

func chunk(s string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(s), s) }

func redirectTo(location string) func(context.Context, net.Conn) {
	return say("HTTP/1.1 302 Found\r\nLocation: " + location + "\r\n" + length(0))
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
