package process_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onsi/gomega/gbytes"
	"github.com/rs/zerolog"

	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/process"
)

func TestALineHasNoColoursWithoutATerminal(t *testing.T) {
	for _, format := range []string{"json", "console", "auto"} {
		var out bytes.Buffer
		log := suitetest.Sure((&process.LogOptions{Level: "info", Format: format}).New(&out, "fetcher"))
		line := process.LogKey(log.Info(), pipeline.Key{Namespace: "shop", Name: "prices", Key: "list.json"})
		process.LogDuration(line, "next", 4*time.Second+300*time.Microsecond).Msg("failed, retrying with back-off")
		got := out.String()
		if strings.Count(got, "\n") != 1 || strings.Contains(got, "\x1b") {
			t.Errorf("%s: %q", format, got)
		}
		for _, part := range []string{"shop/prices/list.json", "4s", "failed, retrying with back-off"} {
			if !strings.Contains(got, part) {
				t.Errorf("%s: %q has no %q", format, got, part)
			}
		}
	}
}

func TestFieldsHaveOneFormat(t *testing.T) {
	var out bytes.Buffer
	log := zerolog.New(&out)
	line := process.LogKey(log.Info(), pipeline.Key{Namespace: "shop", Name: "cool.map", Key: "my.data"})
	line = process.LogObject(line, "shop", "cool.map")
	line = process.LogDuration(process.LogCause(line, v1.Cause_CAUSE_RETRY), "next", 43222692*time.Nanosecond)
	process.LogDuration(line, "wait", 68*time.Minute+38*time.Second+470*time.Millisecond).Msg("x")
	const want = `{"level":"info","key":"shop/cool.map/my.data","configmap":"shop/cool.map","cause":"retry",` +
		`"next":"43ms","wait":"1h8m38s","message":"x"}` + "\n"
	if got := out.String(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	var none *zerolog.Event
	process.LogDuration(process.LogKey(none, pipeline.Key{}), "next", time.Second).Msg("a line that is not written")
}

// entry is a written line.
type entry struct {
	Level, Kind, Message string
	N, Omitted           int
}

func take(t *testing.T, out *gbytes.Buffer) []entry {
	t.Helper()
	var entries []entry
	for line := range strings.Lines(string(out.Contents())) {
		var e entry
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		entries = append(entries, e)
	}
	if err := out.Clear(); err != nil {
		t.Fatal(err)
	}
	return entries
}

func TestABurstIsLimitedAndTheOmittedLinesAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := gbytes.NewBuffer()
		log := process.NewSampledLog(zerolog.New(out))
		for n := range 1000 {
			log.Line(zerolog.InfoLevel, "retry").Int("n", n).Msg("failed")
		}
		log.Line(zerolog.WarnLevel, "gave_up").Msg("another kind is not suppressed")
		log.Line(zerolog.WarnLevel, "retry").Msg("another level is not suppressed")
		time.Sleep(process.LogPeriod) //nolint:forbidigo // no time passes in the bubble of synctest
		synctest.Wait()
		entries := take(t, out)
		if len(entries) != process.LogBurst+3 {
			t.Fatalf("%d lines", len(entries))
		}
		last := entries[len(entries)-1]
		if want := (entry{
			Level: "info", Kind: "retry", Omitted: 1000 - process.LogBurst,
			Message: "omitted similar lines",
		}); last != want {
			t.Errorf("last line is %+v", last)
		}
		if n := entries[process.LogBurst-1].N; n != process.LogBurst-1 {
			t.Errorf("the first lines should be written, not line %d", n)
		}
		log.Line(zerolog.InfoLevel, "retry").Int("n", 7).Msg("after the burst")
		if entries := take(t, out); len(entries) != 1 || entries[0].N != 7 {
			t.Errorf("after the burst: %+v", entries)
		}
	})
}

func TestADisabledLevelWritesNothing(t *testing.T) {
	out := gbytes.NewBuffer()
	log := process.NewSampledLog(zerolog.New(out).Level(zerolog.InfoLevel))
	log.Line(zerolog.DebugLevel, "parked").Msg("below the level")
	if entries := take(t, out); len(entries) != 0 {
		t.Errorf("wrote %+v", entries)
	}
}

func TestLogHidesAddresses(t *testing.T) {
	address := func(s string) net.Addr { return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(s)) }
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
				log := suitetest.Sure((&process.LogOptions{Level: "info", Format: format}).New(&out, "watcher"))
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
