package curlctl_test

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/curlctl/operate"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/pipeline/natstest"
	"github.com/kv8s/curl-me-that/proto/pipeline/pipelinetest"
)

// cluster is a world on three servers that replicate the streams.
type cluster struct {
	*world
	servers []*natstest.Server
}

func clustered(ctx context.Context) *cluster {
	GinkgoHelper()
	servers, addresses := pipelinetest.Cluster(GinkgoTB())
	nc, err := nats.Connect(addresses, nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})) // the default one prints
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(nc.Close)
	js, err := jetstream.New(nc)
	Expect(err).NotTo(HaveOccurred())
	w := &world{server: servers[0], js: js, client: operate.NewClient(js), connect: []string{"--nats-url", addresses}}
	w.epoch, err = pipeline.Ensure(ctx, js, pipeline.Topology{Replicas: 3})
	Expect(err).NotTo(HaveOccurred())
	return &cluster{world: w, servers: servers}
}
