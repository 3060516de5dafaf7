package curlctl_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
)

// scripted is a NATS server that answers the first PING of a connection, numbered from 1. It hangs up after the answer
// to the first three.
func scripted(ctx context.Context, answer func(connection int) string) (address string, connections *atomic.Int32) {
	GinkgoHelper()
	var lc net.ListenConfig
	listener := suitetest.Must(lc.Listen(ctx, "tcp", "127.0.0.1:0"))
	DeferCleanup(listener.Close)
	connections = new(atomic.Int32)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			n := int(connections.Add(1))
			_, _ = fmt.Fprint(conn, `INFO {"version":"2.15.3","headers":true,"max_payload":1048576}`+"\r\n")
			lines := bufio.NewScanner(conn)
			for lines.Scan() && lines.Text() != "PING" {
				continue
			}
			_, _ = fmt.Fprint(conn, answer(n))
			if n < 4 {
				_ = conn.Close()
			}
		}
	}()
	return "nats://" + listener.Addr().String(), connections
}

var _ = Describe("A server, of hooks or pages,", func() {
	// run runs a command until it ends.
	run := func(ctx context.Context, address string, args ...string) <-chan result {
		GinkgoHelper()
		config := filepath.Join(GinkgoT().TempDir(), "hooks.yaml")
		for path, text := range map[string]string{
			filepath.Join(filepath.Dir(config), "secret"): "0123456789abcdef",
			config: "hooks:\n- {name: a, url: \"https://a.example.com/\", kind: bearer, secretFile: secret}\n",
		} {
			Expect(os.WriteFile(path, []byte(text), 0o600)).To(Succeed())
		}
		if len(args) == 0 {
			args = []string{"hooks", "--config", config, "--hooks-listen", "127.0.0.1:0", "--listen", ""}
		}
		results := make(chan result, 1)
		go func() {
			defer GinkgoRecover()
			results <- runAs(ctx, "curlctl", time.Now, append(args, "--nats-url", address)...)
		}()
		return results
	}

	It("connects again after NATS has refused its identity twice", func(ctx SpecContext) {
		running, end := context.WithCancel(ctx)
		address, connections := scripted(ctx, func(connection int) string {
			if connection == 2 || connection == 3 {
				return "-ERR 'Authorization Violation'\r\n"
			}
			return "PONG\r\n"
		})
		ended := run(running, address)
		Eventually(connections.Load).WithTimeout(30 * time.Second).Should(BeEquivalentTo(4))
		end()
		Eventually(ended).Should(Receive())
	})

	It("of hooks ends with exit code 4 after a denied request", func(ctx SpecContext) {
		address, _ := scripted(ctx, func(connection int) string {
			if connection == 1 { // the command serves before the second
				return "PONG\r\n"
			}
			return "PONG\r\n-ERR 'Permissions Violation for Publish to \"curl.due.a.b.c\"'\r\n"
		})
		var r result
		Eventually(run(ctx, address)).WithTimeout(30 * time.Second).Should(Receive(&r))
		Expect(r.code).To(Equal(4), r.err)
		Expect(r.err).To(ContainSubstring("this NATS user may not publish to curl.due.a.b.c"))
	})

	DescribeTable("ends after an error of NATS that ends the connection for good", func(ctx SpecContext, args ...string) {
		address, _ := scripted(ctx, func(int) string { return "PONG\r\n-ERR 'Maximum Payload Violation'\r\n" })
		var r result
		Eventually(run(ctx, address, args...)).WithTimeout(30 * time.Second).Should(Receive(&r))
		Expect(r.code).To(Equal(3), r.err)
		Expect(r.err).To(ContainSubstring("NATS closed the connection for good: nats: Maximum Payload Violation"))
	},
		Entry("hooks"),
		Entry("the console", "console"),
	)
})
