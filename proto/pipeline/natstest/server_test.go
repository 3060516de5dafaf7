package natstest_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/kv8s/curl-me-that/proto/pipeline/natstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// run starts a server for the test.
func run(t *testing.T, o natstest.Options) *natstest.Server {
	t.Helper()
	s, err := natstest.Run(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// connect opens a JetStream context for the test.
func connect(t *testing.T, s *natstest.Server, opts ...nats.Option) jetstream.JetStream {
	t.Helper()
	js, closeConn, err := s.JetStream(opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(closeConn)
	return js
}

// fill creates a stream with n messages.
func fill(t *testing.T, js jetstream.JetStream, n int) {
	t.Helper()
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}}); err != nil {
		t.Fatal(err)
	}
	for range n {
		if _, err := js.Publish(t.Context(), "s", []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
}

// count returns the number of messages in that stream.
func count(t *testing.T, js jetstream.JetStream) uint64 {
	t.Helper()
	s, err := js.Stream(t.Context(), "S")
	if err != nil {
		t.Fatal(err)
	}
	return s.CachedInfo().State.Msgs
}

// awaitAnswer fails the test if a connection does not reconnect.
func awaitAnswer(t *testing.T, nc *nats.Conn) {
	t.Helper()
	deadline, poll := time.After(time.Minute), time.NewTicker(10*time.Millisecond)
	defer poll.Stop()
	for {
		_, err := nc.RTT()
		if err == nil {
			return
		}
		select {
		case <-poll.C:
		case <-deadline:
			t.Fatalf("an open connection does not find back: %v", err)
		}
	}
}

func TestStoreOutlivesTheServer(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*natstest.Server) error{
		"stop": func(s *natstest.Server) error { s.Stop(); return nil },
		"kill": (*natstest.Server).Kill,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := run(t, natstest.Options{})
			js := connect(t, s)
			fill(t, js, 100)
			if err := end(s); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Connect(); err == nil {
				t.Error("a stopped server takes connections")
			}
			if err := s.Start(); err != nil {
				t.Fatal(err)
			}
			if err := s.Start(); err == nil {
				t.Error("a running server starts once more")
			}
			if got := count(t, connect(t, s)); got != 100 {
				t.Errorf("%d messages are left of 100", got)
			}
			awaitAnswer(t, js.Conn())
		})
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	config := filepath.Join(t.TempDir(), "nats.conf")
	if err := os.WriteFile(config, []byte(`
		port: 1
		jetstream: { store_dir: "/nonexistent" }
		authorization: { user: u, password: p }
	`), 0o600); err != nil {
		t.Fatal(err)
	}
	s := run(t, natstest.Options{ConfigFile: config, MaxPayload: 4096, Listen: true})
	// In-process refusals take as long as the server's write deadline, 10 s.
	if _, err := nats.Connect(s.URL()); err == nil {
		t.Error("the users of the configuration do not count")
	}
	js := connect(t, s, nats.UserInfo("u", "p"))
	if got := js.Conn().MaxPayload(); got != 4096 {
		t.Errorf("max_payload is %d, want 4096", got)
	}
	fill(t, js, 1)

	if _, err := natstest.Run(natstest.Options{ConfigFile: filepath.Join(t.TempDir(), "none")}); err == nil {
		t.Error("a missing configuration is no error")
	}
}
