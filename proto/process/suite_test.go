package process_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega/gexec"
	"github.com/spf13/cobra"

	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/proto/process"
)

// toyEnv makes the test binary a service that does nothing.
const toyEnv = "CURL_ME_THAT_TOY"

func TestMain(m *testing.M) {
	if os.Getenv(toyEnv) != "" {
		os.Exit(process.Execute(newToy()))
	}
	os.Exit(m.Run())
}

func newToy() *cobra.Command {
	var options process.Options
	var greeting string
	var stubborn bool
	cmd := &cobra.Command{
		Use:  "toy",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			fmt.Println("greeting:", greeting)
			if stubborn {
				fmt.Fprintln(os.Stderr, "stubborn")
				<-cmd.Context().Done()
				fmt.Fprintln(os.Stderr, "draining")
				select {}
			}
			return options.Run(cmd.Context(), "toy", func(ctx context.Context, rt *process.Runtime) error {
				rt.Started()
				<-ctx.Done()
				return nil
			})
		},
	}
	options.BindFlags(cmd.Flags(), "")
	cmd.Flags().StringVar(&greeting, "greeting", "none", "what to print")
	cmd.Flags().Int("count", 1, "how often")
	cmd.Flags().BoolVar(&stubborn, "stubborn", false, "do not end when asked to")
	return cmd
}

// run runs the toy, which is the test binary itself.
func run(env []string, args ...string) *gexec.Session {
	GinkgoHelper()
	cmd := exec.Command(suitetest.Must(os.Executable()), args...)
	cmd.Env = append(append(os.Environ(), toyEnv+"=1"), env...)
	session := suitetest.Must(gexec.Start(cmd, GinkgoWriter, GinkgoWriter))
	DeferCleanup(func() { session.Kill().Wait() })
	return session
}

// freeAddress returns a loopback address that was free a moment ago.
func freeAddress() string {
	GinkgoHelper()
	listener := suitetest.Must(net.Listen("tcp", "127.0.0.1:0"))
	defer listener.Close() //nolint:errcheck // it was never used
	return listener.Addr().String()
}

func TestProcess(t *testing.T) { suitetest.Run(t, "process") }
