package local

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/spf13/pflag"

	"github.com/kv8s/curl-me-that/proto/process"
)

var _ = It("A start that takes long names what it waits for, whatever the log level", func(ctx SpecContext) {
	output, health := gbytes.NewBuffer(), process.NewHealth()
	health.Part("disk").NotReady("it is full")
	config := DefaultConfig()
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	config.BindFlags(fs)
	Expect(fs.Parse([]string{"--namespaces", "local-none"})).To(Succeed())
	Expect(config.Validate()).To(Succeed())
	a := &assembly{
		config: &config, log: zerolog.New(output).Level(zerolog.ErrorLevel), health: health,
		registry: prometheus.NewRegistry(), broker: started(GinkgoT().TempDir(), ""),
		slowStart: time.Millisecond,
	}
	serving, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- a.serve(serving, nil, func(context.Context) error { panic("it is not ready") }) }()
	Eventually(output).Should(gbytes.Say(`disk \(it is full\).*not ready after 1ms, still trying: --log-level=warn shows`))
	stop()
	Eventually(ended).Should(Receive(Or(BeNil(), MatchError(context.Canceled))))
})
