package process_test

import (
	"bytes"
	"errors"
	"net"
	"net/url"
	"strings"
	"syscall"
	"testing"

	"github.com/kv8s/curl-me-that/proto/process"
)

func TestLogHidesAddresses(t *testing.T) {
	address := func(s string) *net.TCPAddr {
		a, err := net.ResolveTCPAddr("tcp", s)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	broken := &net.OpError{
		Op: "read", Net: "tcp", Source: address("10.1.2.3:53418"), Addr: address("10.96.0.1:443"),
		Err: syscall.ECONNRESET,
	}
	six := &net.OpError{Op: "dial", Net: "tcp", Addr: address("[fd00::1]:443"), Err: syscall.ECONNREFUSED}
	for _, c := range []struct {
		name, want string
		err        error
	}{
		{"connection", "read tcp (address)->(address): connection reset by peer", broken},
		{"IPv6", "dial tcp (address): connection refused", six},
		{
			"in a URL", `Get "https://(address)/api": dial tcp (address): connection refused`,
			&url.Error{Op: "Get", URL: "https://[fd00::1]:443/api", Err: six},
		},
		{
			"resolver", "lookup api.example on (address): no such host",
			&net.DNSError{Err: "no such host", Name: "api.example", Server: "10.96.0.10:53"},
		},
		{
			"certificate", "certificate is valid for (address), not (address)",
			errors.New("certificate is valid for 10.0.0.1, not 10.0.0.2"),
		},
		{"no address", "version 1.36.3 of [1 2] at 18:35:42", errors.New("version 1.36.3 of [1 2] at 18:35:42")},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, format := range []string{"json", "console"} {
				var out bytes.Buffer
				log, err := (&process.LogOptions{Level: "info", Format: format}).New(&out, "watcher")
				if err != nil {
					t.Fatal(err)
				}
				log.Warn().Err(c.err).Str("servers", "nats://127.0.0.1:4222,nats://127.0.0.1:4223").Msg("failed")
				logged := strings.ReplaceAll(out.String(), `\"`, `"`)
				if !strings.Contains(logged, c.want) {
					t.Errorf("%s: %q does not contain %q", format, logged, c.want)
				}
				if !strings.Contains(logged, "nats://127.0.0.1:4222,nats://127.0.0.1:4223") {
					t.Errorf("%s hides the configured servers: %q", format, logged)
				}
			}
		})
	}
}
