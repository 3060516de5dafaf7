// Package broker stops the broker in every possible way and checks that the system keeps its
// promises.
package broker_test

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
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/proto/suitetest"
)

func TestBroker(t *testing.T) { world.Run(t, "Broker") }

var env *world.Environment

var _ = BeforeSuite(func() { env = world.Open() })

const refreshKey = "x-kv8s.io/curl-refresh"

const (
	// shortAckWait is how long before a killed service's work is redelivered here. The default is
	// 30 s.
	shortAckWait = 3 * time.Second
	// aWhile is how long a spec watches before it concludes that something did not happen.
	aWhile = time.Second
)

// Variables that turn this test binary into a NATS server. Only a process can be killed with kill
// -9.
const (
	brokerAddress = "BROKER_ADDRESS"
	brokerStore   = "BROKER_STORE"
	// brokerName is the name of one server of a cluster, brokerRoute its route address, and
	// brokerRoutes the route addresses of all. Such a server syncs to disk before it acknowledges,
	// as in deploy/nats/cluster.conf.
	brokerName   = "BROKER_NAME"
	brokerRoute  = "BROKER_ROUTE"
	brokerRoutes = "BROKER_ROUTES"
	// brokerMonitor is the monitoring address of one server of a cluster.
	brokerMonitor = "BROKER_MONITOR"
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
	o := &server.Options{ServerName: "broker", JetStream: true, StoreDir: store, NoSigs: true, NoLog: true}
	if err := listenAt(address, &o.Host, &o.Port); err != nil {
		return err
	}
	if route := os.Getenv(brokerRoute); route != "" {
		o.ServerName, o.SyncAlways, o.Cluster.Name = os.Getenv(brokerName), true, "broker"
		if err := listenAt(route, &o.Cluster.Host, &o.Cluster.Port); err != nil {
			return err
		}
		if err := listenAt(os.Getenv(brokerMonitor), &o.HTTPHost, &o.HTTPPort); err != nil {
			return err
		}
		o.Routes = server.RoutesFromStr(os.Getenv(brokerRoutes))
	}
	s, err := server.NewServer(o)
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

// listenAt parses a listen address.
func listenAt(address string, host *string, port *int) error {
	h, p, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	*host = h
	*port, err = strconv.Atoi(p)
	return err
}

// runBroker runs a NATS server as a process until the end of the spec.
func runBroker(variables ...string) (url string, p *process.Process) {
	GinkgoHelper()
	program := suitetest.Must(os.Executable())
	address := env.FreeAddress()
	p = suitetest.Must(process.Start(process.Program{
		Name: "broker", Path: program,
		Env: append(variables, brokerAddress+"="+address, brokerStore+"="+GinkgoT().TempDir()),
	}))
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
