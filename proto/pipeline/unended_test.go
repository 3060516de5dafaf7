package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"google.golang.org/protobuf/proto"

	"github.com/kv8s/curl-me-that/deploy/testkit/natstest"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// dyingConsumer is the environment variable with the address of a server. If it is set, this
// program runs no specs but consumes from that server, until the first message kills it.
const dyingConsumer = "PIPELINE_SPEC_DIES_FOR"

func consumeUntilKilled(url string) error {
	nc, err := nats.Connect(url)
	if err != nil {
		return err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	ctx, stop := context.WithTimeout(context.Background(), 30*time.Second)
	defer stop()
	o := pipeline.ConsumeOptions{
		Stream: pipeline.Requests, Consumer: pipeline.FetcherConsumer, Concurrency: 1, MaxUnended: 2,
		Observe: func(_ *pipeline.Delivery, d pipeline.Disposition) { fmt.Println(d); stop() },
	}
	return errors.Join(pipeline.Consume(ctx, js, o, func(context.Context, *pipeline.Delivery) pipeline.Disposition {
		return pipeline.DeadLetter(syscall.Kill(os.Getpid(), syscall.SIGKILL))
	}), nc.Drain())
}

var _ = Describe("A message that is delivered repeatedly", func() {
	It("is not poison after ten shutdowns", func(ctx SpecContext) {
		js, c := ensured()
		must(c.PublishWant(ctx, natstest.Want(key, "https://a.example/x"), 0))
		for range 10 {
			stopping, stop := context.WithCancel(ctx)
			begun := make(chan struct{}, 1)
			r := consume(stopping, js, fetcher, func(_ context.Context, d *pipeline.Delivery) pipeline.Disposition {
				select {
				case begun <- struct{}{}:
				default: // a returned message may be delivered again before the reader stops
				}
				<-d.Draining()
				return pipeline.GiveBack()
			})
			Eventually(begun).Should(Receive())
			stop()
			Eventually(r.done).Should(BeClosed())
			Expect(r.ended()).To(HaveEach("give_back"))
		}
		var number atomic.Uint64
		r := consume(ctx, js, fetcher, func(_ context.Context, d *pipeline.Delivery) pipeline.Disposition {
			number.Store(d.Number())
			return pipeline.Ack()
		})
		Eventually(r.ended).Should(HaveExactElements("ack"))
		Expect(number.Load()).To(BeNumerically(">", 10))
		Expect(deadLetters(ctx, c)).To(BeEmpty())
	})

	It("is poison only after it has killed its process too often", func(ctx SpecContext) {
		s := natstest.Broker(GinkgoTB(), natstest.Options{Listen: true})
		js := natstest.Connect(GinkgoTB(), s)
		must(pipeline.Ensure(ctx, js, pipeline.Topology{}))
		shorten(ctx, js, time.Second)
		c := pipeline.NewClient(js)
		must(c.PublishWant(ctx, natstest.Want(key, "https://a.example/x"), 0))
		for range 3 { // the first leaves no record
			Expect(deadLetters(ctx, c)).To(BeEmpty())
			Expect(dying(ctx, s.URL()).Run()).To(MatchError("signal: killed"))
		}
		output := must(dying(ctx, s.URL()).Output())
		Expect(string(output)).To(Equal("dead_letter\n"))
		Expect(deadLetters(ctx, c)).To(under("Poison"))
	}, SpecTimeout(3*time.Minute))

	It("does not inherit the count of the message that it replaced", func(ctx SpecContext) {
		js, c := ensured()
		first := must(c.PublishWant(ctx, natstest.Want(key, "https://a.example/x"), 0))
		o := fetcher
		o.MaxUnended = 2
		var replaced atomic.Bool
		r := consume(ctx, js, o, func(_ context.Context, d *pipeline.Delivery) pipeline.Disposition {
			if d.Sequence() == first && d.Number() == 2 && replaced.CompareAndSwap(false, true) {
				must(c.PublishWant(ctx, natstest.Want(key, "https://a.example/y"), first))
			}
			if d.Sequence() != first && d.Number() == 2 {
				return pipeline.Ack()
			}
			panic("every handling except the last")
		})
		Eventually(r.ended, 10*time.Second).Should(ContainElement("ack"))
		Expect(deadLetters(ctx, c)).To(BeEmpty())
	})

	It("has a count of zero after two overlapping handlings have ended", func(ctx SpecContext) {
		js, c := ensured()
		shorten(ctx, js, time.Second)
		must(c.PublishWant(ctx, natstest.Want(key, "https://a.example/x"), 0))
		o := fetcher
		o.InProgressEvery = time.Hour // so the server redelivers it meanwhile
		third, ended := make(chan struct{}), make(chan struct{})
		r := consume(ctx, js, o, func(_ context.Context, d *pipeline.Delivery) pipeline.Disposition {
			switch d.Number() {
			case 1:
				return pipeline.GiveBack()
			case 2:
				<-third
			case 3:
				close(third)
				<-ended
			}
			return pipeline.Ack()
		})
		Eventually(r.ended, 10*time.Second).Should(HaveExactElements("give_back", "ack"))
		close(ended)
		Eventually(r.ended).Should(HaveExactElements("give_back", "ack", "ack"))
		m := must(c.LastMessage(ctx, pipeline.Requests, "curl.begun."+key.Want()))
		begun := new(v1.Begun)
		Expect(proto.Unmarshal(m.Data, begun)).To(Succeed())
		Expect(begun.GetUnended()).To(BeZero())
	})
})

// shorten sets AckWait to d.
func shorten(ctx context.Context, js jetstream.JetStream, d time.Duration) {
	GinkgoHelper()
	consumer := must(js.Consumer(ctx, pipeline.Requests, pipeline.FetcherConsumer))
	config := consumer.CachedInfo().Config
	config.AckWait = d
	must(js.UpdateConsumer(ctx, pipeline.Requests, config))
}

// dying returns the command of a process that consumes from a server until a message kills it.
func dying(ctx context.Context, url string) *exec.Cmd {
	GinkgoHelper()
	self := must(os.Executable())
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), dyingConsumer+"="+url)
	cmd.Stderr = GinkgoWriter
	return cmd
}
