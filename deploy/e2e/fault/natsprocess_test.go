package fault_test

import (
	"fmt"
	"net"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/process"
)

// Variables that make a NATS server of the program of this test. Only a
// process can be killed as kill -9 does.
const (
	brokerAddress = "FAULT_BROKER_ADDRESS"
	brokerStore   = "FAULT_BROKER_STORE"
)

func TestMain(m *testing.M) {
	if address := os.Getenv(brokerAddress); address != "" {
		if err := serveBroker(address, os.Getenv(brokerStore)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// serveBroker runs a NATS server until SIGTERM.
func serveBroker(address, store string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		return err
	}
	s, err := server.NewServer(&server.Options{
		ServerName: "broker", Host: host, Port: number, JetStream: true, StoreDir: store, NoSigs: true, NoLog: true,
	})
	if err != nil {
		return err
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	s.Start()
	<-stop
	s.Shutdown()
	s.WaitForShutdown()
	return nil
}

// runBroker runs a NATS server as a process until the end of the spec.
func runBroker() (url string, p *process.Process) {
	GinkgoHelper()
	program, err := os.Executable()
	Expect(err).NotTo(HaveOccurred())
	address := env.FreeAddress()
	p, err = process.Start(process.Program{
		Name: "broker", Path: program,
		Env: []string{brokerAddress + "=" + address, brokerStore + "=" + GinkgoT().TempDir()},
	})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() {
		if p.Running() {
			Expect(p.Kill()).To(Succeed())
		}
	})
	Eventually(func() error {
		conn, err := net.DialTimeout("tcp", address, time.Second)
		if err != nil {
			return err
		}
		return conn.Close()
	}).Should(Succeed())
	return "nats://" + address, p
}
