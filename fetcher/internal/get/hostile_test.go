package get_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	curlmethatv1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
)

// secret is the text that hostile servers send wherever they can; no error may repeat it.
const secret = "s3rv3r-t3xt"

// hostile is a hostile server and the expected outcome.
type hostile struct {
	name   string
	handle func(context.Context, net.Conn)
	// class is the expected failure; unspecified means success.
	class  curlmethatv1.FailureClass
	status int
	body   string
}

// Short names of the classes.
const (
	well             = curlmethatv1.FailureClass_FAILURE_CLASS_UNSPECIFIED
	addressDenied    = curlmethatv1.FailureClass_FAILURE_CLASS_ADDRESS_DENIED
	dnsFailed        = curlmethatv1.FailureClass_FAILURE_CLASS_DNS_FAILED
	connectFailed    = curlmethatv1.FailureClass_FAILURE_CLASS_CONNECT_FAILED
	tlsFailed        = curlmethatv1.FailureClass_FAILURE_CLASS_TLS_FAILED
	timedOut         = curlmethatv1.FailureClass_FAILURE_CLASS_TIMEOUT
	tooManyRedirects = curlmethatv1.FailureClass_FAILURE_CLASS_TOO_MANY_REDIRECTS
	badStatus        = curlmethatv1.FailureClass_FAILURE_CLASS_BAD_STATUS
	bodyTooLarge     = curlmethatv1.FailureClass_FAILURE_CLASS_BODY_TOO_LARGE
	badResponse      = curlmethatv1.FailureClass_FAILURE_CLASS_BAD_RESPONSE
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

func length(n int) string { return fmt.Sprintf("Content-Length: %d\r\n\r\n", n) }

func chunk(s string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(s), s) }

func hostileBodies() []hostile {
	const chunked = ok + "Transfer-Encoding: chunked\r\n\r\n"
	full := strings.Repeat("x", limit)
	odd := "\xff\xfe\x00\x1b[31m\u202e\xc3("
	return []hostile{
		{name: "empty 200", handle: say(ok + length(0))},
		{name: "empty 200 without a length", handle: say(ok + "Connection: close\r\n\r\n")},
		{name: "limit exactly", handle: say(ok + length(limit) + full), body: full},
		{name: "limit exactly, chunked", handle: say(chunked + chunk(full) + "0\r\n\r\n"), body: full},
		{name: "limit exactly, until close", handle: say(ok + "Connection: close\r\n\r\n" + full), body: full},
		{name: "limit plus one", handle: say(ok + length(limit+1) + full + "x"), class: bodyTooLarge},
		{name: "limit plus one, chunked", handle: say(chunked + chunk(full+"x") + "0\r\n\r\n"), class: bodyTooLarge},
		{
			name: "limit plus one, until close", handle: say(ok + "Connection: close\r\n\r\n" + full + "x"),
			class: bodyTooLarge,
		},
		{name: "endless body, fast", handle: repeat(ok+"\r\n", secret), class: bodyTooLarge},
		{name: "endless chunks, fast", handle: repeat(chunked, chunk(secret)), class: bodyTooLarge},
		{name: "endless body, slow", handle: slowly(ok + "\r\n"), class: timedOut},
		{name: "truncated body", handle: say(ok + length(100) + secret), class: badResponse},
		{name: "truncated chunk", handle: say(chunked + "64\r\n" + secret), class: badResponse},
		{name: "truncated chunks", handle: say(chunked + chunk(secret)), class: badResponse},
		{name: "truncated trailer", handle: say(chunked + chunk(secret) + "0\r\nX-Tra"), class: badResponse},
		{name: "chunk size that is none", handle: sayAndHold(chunked + secret + "\r\n"), class: badResponse},
		{name: "chunk size of 2^64", handle: say(chunked + "10000000000000000\r\n" + secret), class: badResponse},
		{
			name: "chunk-extension flood", handle: repeat(chunked, "1;"+strings.Repeat("e", 2000)+"\r\nx\r\n"),
			class: badResponse,
		},
		{name: "endless chunk extension", handle: repeat(chunked+"1;", secret), class: badResponse},
		{name: "trailer flood", handle: repeat(chunked+chunk("x")+"0\r\n", "X-Trailer: "+secret+"\r\n"), class: badResponse},
		{name: "invalid UTF-8, NUL and escape bytes", handle: say(ok + length(len(odd)) + odd), body: odd},
		{
			name: "gzip bomb", handle: say(ok + "Content-Encoding: gzip\r\n" + length(len(bomb())) + bomb()),
			class: badResponse,
		},
		{name: "gzip bomb unsaid", handle: say(ok + length(len(bomb())) + bomb()), body: bomb()},
		{
			name:   "gzip as transfer coding",
			handle: say(ok + "Transfer-Encoding: gzip, chunked\r\n\r\n" + chunk(bomb()) + "0\r\n\r\n"), class: badResponse,
		},
		{name: "brotli", handle: say(ok + "Content-Encoding: br\r\n" + length(4) + "\x8b\x00\x80\x03"), class: badResponse},
		{
			name:   "identity said twice, then gzip",
			handle: say(ok + "Content-Encoding: identity\r\nContent-Encoding: gzip\r\n" + length(1) + "x"), class: badResponse,
		},
		{name: "identity said", handle: say(ok + "Content-Encoding: identity\r\n" + length(5) + "hello"), body: "hello"},
		{
			name: "pipelined second response", handle: say(ok + length(5) + "hello" + ok + length(len(secret)) + secret),
			body: "hello",
		},
	}
}

func hostileLengths() []hostile {
	return []hostile{
		{
			name: "absurd Content-Length", handle: sayAndHold(ok + "Content-Length: 9223372036854775807\r\n\r\nx"),
			class: bodyTooLarge,
		},
		{
			name: "Content-Length beyond 64 bits", handle: sayAndHold(ok + "Content-Length: 99999999999999999999\r\n\r\nx"),
			class: badResponse,
		},
		{name: "negative Content-Length", handle: sayAndHold(ok + "Content-Length: -1\r\n\r\nx"), class: badResponse},
		{name: "Content-Length with a sign", handle: sayAndHold(ok + "Content-Length: +5\r\n\r\nhello"), class: badResponse},
		{name: "empty Content-Length", handle: sayAndHold(ok + "Content-Length: \r\n\r\nx"), class: badResponse},
		{
			name: "conflicting Content-Lengths", handle: sayAndHold(ok + "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!"),
			class: badResponse,
		},
	}
}

func hostileHeaders() []hostile {
	return []hostile{
		{name: "one header of 2 MiB", handle: repeat(ok+"X-Big: ", strings.Repeat("x", 2<<20)), class: badResponse},
		{
			name:   "headers below the limit",
			handle: say(ok + "X-Big: " + strings.Repeat("x", 60<<10) + "\r\n" + length(1) + "x"), body: "x",
		},
		{
			name:   "headers above the limit",
			handle: say(ok + "X-Big: " + strings.Repeat("x", 66<<10) + "\r\n" + length(1) + "x"), class: badResponse,
		},
		{name: "endless small headers", handle: repeat(ok, "X-Small: "+secret+"\r\n"), class: badResponse},
		{name: "endless folded header", handle: repeat(ok, " "+secret+"\r\n"), class: badResponse},
		{
			name: "endless 103s", handle: repeat("", "HTTP/1.1 103 Early Hints\r\nLink: <"+secret+">\r\n\r\n"),
			class: badResponse,
		},
		{name: "endless 100s", handle: repeat("", "HTTP/1.1 100 Continue\r\n\r\n"), class: badResponse},
		{name: "103s without haste", handle: slowly("HTTP/1.1 103 Early Hints\r\n"), class: timedOut},
		{name: "endless status line", handle: repeat("HTTP/1.1 200 ", secret), class: badResponse},
		{name: "header without a colon", handle: say("HTTP/1.1 200 OK\r\n" + secret + "\r\n\r\nx"), class: badResponse},
		{name: "header with a NUL", handle: say("HTTP/1.1 200 OK\r\nX-\x00: " + secret + "\r\n\r\nx"), class: badResponse},
		{name: "no HTTP", handle: say("220 " + secret + " ESMTP\r\n"), class: badResponse},
		{name: "HTTP/0.9", handle: say("<html>\n" + secret + "</html>"), class: badResponse},
		{name: "close in the status line", handle: say("HTTP/1.1 2"), class: badResponse},
		{name: "HTTP/2.0 in text", handle: say("HTTP/2.0 200 OK\r\n" + length(1) + "x"), class: well, body: "x"},
		{name: "a status that is none", handle: say("HTTP/1.1 2x0 OK\r\n" + length(1) + "x"), class: badResponse},
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
		all = append(all, hostile{
			name: fmt.Sprint("status ", status), handle: say(text + body), class: badStatus,
			status: status,
		})
	}
	return append(all,
		hostile{
			name: "404 with an endless body", handle: repeat("HTTP/1.1 404 No\r\n\r\n", secret), class: badStatus,
			status: 404,
		},
		hostile{
			name: "500 without its body", handle: sayAndHold("HTTP/1.1 500 No\r\n" + length(100)), class: badStatus,
			status: 500,
		},
		hostile{
			name: "500 with a broken body", handle: say("HTTP/1.1 500 No\r\nTransfer-Encoding: chunked\r\n\r\nzz"),
			class: badStatus, status: 500,
		},
		hostile{
			name:   "503 in gzip",
			handle: say("HTTP/1.1 503 No\r\nContent-Encoding: gzip\r\n" + length(4) + "\x1f\x8b\x08\x00"), class: badStatus,
			status: 503,
		},
		hostile{
			name:   "101 that goes on talking",
			handle: repeat("HTTP/1.1 101 Yes\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n", secret), class: badStatus,
			status: 101,
		},
	)
}

func redirectTo(location string) func(context.Context, net.Conn) {
	return say("HTTP/1.1 302 Found\r\nLocation: " + location + "\r\n" + length(0))
}

func hostileRedirects() []hostile {
	return []hostile{
		{name: "redirect to self", handle: redirectTo("/" + secret), class: tooManyRedirects, status: 302},
		{name: "redirect to a denied address", handle: redirectTo("http://127.0.0.2/"), class: addressDenied},
		{
			name: "redirect to the metadata service", handle: redirectTo("http://169.254.169.254/latest/meta-data/"),
			class: addressDenied,
		},
		{name: "redirect to an odd spelling of it", handle: redirectTo("http://0xa9fea9fe/"), class: addressDenied},
		{name: "redirect to file:", handle: redirectTo("file:///etc/passwd"), class: addressDenied},
		{name: "redirect to data:", handle: redirectTo("data:text/plain," + secret), class: addressDenied},
		{
			name: "redirect with credentials", handle: redirectTo("http://" + secret + ":pw@data.example.com/"),
			class: addressDenied,
		},
		{
			name: "redirect without Location", handle: say("HTTP/1.1 302 Found\r\n" + length(0)), class: badResponse,
			status: 302,
		},
		{name: "redirect with an empty Location", handle: redirectTo(""), class: badResponse, status: 302},
		{
			name: "redirect with a broken Location", handle: redirectTo("http://[" + secret + "/"), class: badResponse,
			status: 302,
		},
		{
			name: "redirect with a broken port", handle: redirectTo("http://data.example.com:x/"), class: badResponse,
			status: 302,
		},
		{name: "redirect to port 22", handle: redirectTo("http://93.184.216.34:22/"), class: addressDenied},
		{name: "redirect to an endless URL", handle: redirectTo("/" + strings.Repeat("x", 30_000)), class: addressDenied},
		{
			name:   "redirect that never ends its body",
			handle: sayAndHold("HTTP/1.1 302 Found\r\nLocation: /" + secret + "\r\n" + length(100)), class: tooManyRedirects,
			status: 302,
		},
	}
}

func hostileConnections() []hostile {
	return []hostile{
		{name: "close at once", handle: func(context.Context, net.Conn) {}, class: connectFailed},
		{name: "close after the request", handle: say(""), class: connectFailed},
		{name: "close in the headers", handle: say(ok), class: badResponse},
		{name: "close in a header", handle: say("HTTP/1.1 200 OK\r\nX-Te"), class: badResponse},
		{name: "reset at once", handle: reset(""), class: connectFailed},
		{name: "reset in mid-body", handle: reset(ok + length(100) + secret), class: badResponse},
		{name: "silence after accept", handle: hold, class: timedOut},
		{name: "silence after the request", handle: sayAndHold(""), class: timedOut},
		{name: "silence in the headers", handle: sayAndHold("HTTP/1.1 200 OK\r\nX-Te"), class: timedOut},
		{name: "silence after the headers", handle: sayAndHold(ok + length(100)), class: timedOut},
		{name: "silence in the body", handle: sayAndHold(ok + length(100) + secret), class: timedOut},
		{name: "speaks first", handle: unasked("SSH-2.0-" + secret + "\r\n"), class: badResponse},
		{name: "answers first", handle: unasked(ok + "Connection: close\r\n" + length(5) + "hello"), body: "hello"},
		{name: "h2 settings and GOAWAY", handle: unasked(h2Settings + h2GoAway), class: timedOut},
		{name: "h2 REFUSED_STREAM", handle: unasked(h2Settings + h2Refused), class: timedOut},
		{name: "h2 PING flood", handle: flood(h2Settings, h2Ping), class: badResponse},
		{name: "h2 empty DATA flood", handle: flood(h2Settings, h2EmptyData), class: badResponse},
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

// unasked sends before it reads.
func unasked(text string) func(context.Context, net.Conn) {
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
