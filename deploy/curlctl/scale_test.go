//go:build !race

package curlctl_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// The size of the history, and limits.
const (
	manyFailures  = 20_000
	firstPageTime = 200 * time.Millisecond // of processor time
	// memoryLimit limits resident memory. Half of it is the program. A replay of 18,000 failures takes 75 MiB on an
	// idle machine, and 81 MiB on a busy one, where garbage is collected late.
	memoryLimit = 100 << 20
)

// fill adds manyFailures wants with a failure each, a tenth of them for slow.example.com.
func fill(js jetstream.JetStream, epoch int64) error {
	snippet := bytes.Repeat([]byte("x"), 1024)
	publish := func(subject string, m proto.Message) error {
		data, err := proto.Marshal(m)
		if err != nil {
			return err
		}
		_, err = js.PublishMsgAsync(&nats.Msg{Subject: subject, Data: data})
		return err
	}
	for i := range manyFailures {
		key := pipeline.Key{Namespace: fmt.Sprintf("team-%d", i%7), Name: fmt.Sprintf("cm-%05d", i), Key: "k"}
		host := "fast.example.com"
		if i%10 == 0 {
			host = "slow.example.com"
		}
		want := &v1.Want{Namespace: key.Namespace, Name: key.Name, Key: key.Key, Uid: "uid", Url: "https://" + host + "/" +
			key.Name, Epoch: epoch}
		letter := &v1.DeadLetter{
			Want: want, Snippet: snippet, LastFailedAt: timestamppb.Now(),
			Failure: &v1.Failure{
				Class: v1.FailureClass_FAILURE_CLASS_TIMEOUT, Host: host, Attempts: 6,
				FirstFailedAt: timestamppb.Now(),
			},
		}
		if err := publish(key.WantSubject(), want); err != nil {
			return err
		}
		if err := publish(key.DeadLetterSubject("Timeout", host), letter); err != nil {
			return err
		}
		if i%1000 == 999 {
			<-js.PublishAsyncComplete()
		}
	}
	return nil
}

// program returns curlctl in CURLMETHAT_BIN, or builds it, which takes seconds.
func program() string {
	GinkgoHelper()
	if dir := os.Getenv("CURLMETHAT_BIN"); dir != "" {
		return filepath.Join(dir, "curlctl")
	}
	path := filepath.Join(GinkgoT().TempDir(), "curlctl")
	built, err := exec.Command("go", "build", "-o", path, "./cmd/curlctl").CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(built))
	return path
}

// processorTime returns the processor time of this process.
func processorTime() time.Duration {
	GinkgoHelper()
	var usage syscall.Rusage
	Expect(syscall.Getrusage(syscall.RUSAGE_SELF, &usage)).To(Succeed())
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

var highWater = regexp.MustCompile(`VmHWM:\s+(\d+) kB`)

// resident runs the program, and returns its output and peak resident memory in bytes. It does not use rusage,
// which starts at the peak of this process.
func resident(path string, args ...string) (string, int) {
	GinkgoHelper()
	var out, said bytes.Buffer
	cmd := exec.Command(path, args...)
	cmd.Stdout, cmd.Stderr = &out, &said
	cmd.Env = append(os.Environ(), "GOGC=") // that of the tests saves time
	Expect(cmd.Start()).To(Succeed())
	ended := make(chan error)
	go func() { ended <- cmd.Wait() }()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for most := 0; ; {
		select {
		case err := <-ended:
			Expect(err).NotTo(HaveOccurred(), "%s", &said)
			return out.String(), most << 10
		case <-tick.C:
			text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid)) // gone when it has ended
			if match := highWater.FindSubmatch(text); match != nil {
				most, _ = strconv.Atoi(string(match[1]))
			}
		}
	}
}

var _ = Describe("A long history", Ordered, func() {
	var w *world
	BeforeAll(func(ctx SpecContext) {
		w = newWorld(ctx)
		Expect(fill(w.js, w.epoch)).To(Succeed())
		Eventually(func() uint64 { return w.lastSequences()[2] }).Should(BeEquivalentTo(manyFailures))
	})

	It("shows its first page quickly", func(ctx SpecContext) {
		best := time.Hour
		for range 5 {
			begun := processorTime()
			Expect(strings.Count(w.ok(ctx, "failures"), "\n")).To(Equal(51))
			best = min(best, processorTime()-begun)
		}
		AddReportEntry("first page", best.String())
		Expect(best).To(BeNumerically("<", firstPageTime))
	})

	It("shows its first page in the console, and the command to replay it", func() {
		b := w.open().enter()
		page := b.page("/failures")
		Expect(page).To(ContainSubstring("<b>20,000</b> match"))
		Expect(len(page)).To(BeNumerically("<", 60<<10))
		Expect(b.page("/failures/replay?key=k")).To(And(ContainSubstring("at most 500 at once. Use the command."),
			ContainSubstring("curlctl replay --key=k"), Not(ContainSubstring("<form method"))))
	})

	It("is listed and replayed with little memory", func(SpecContext) {
		if runtime.GOOS != "linux" {
			Skip("the memory of a process is read from /proc")
		}
		path := program()
		run := func(args ...string) string {
			GinkgoHelper()
			out, memory := resident(path, append(args, w.connect...)...)
			AddReportEntry("memory of "+strings.Join(args, " "), fmt.Sprintf("%d MiB", memory>>20))
			Expect(memory).To(BeNumerically("<", memoryLimit), "resident memory of %v", args)
			return out
		}
		Expect(strings.Count(run("failures", "--limit=0"), "\n")).To(Equal(manyFailures + 1))
		Expect(strings.Count(run("failures", "--limit=0", "-o", "json"), `"id"`)).To(Equal(manyFailures))
		Expect(run("replay", "--host=slow.example.com", "--yes")).To(Equal("Replayed 2,000 failures.\n"))
		Expect(run("replay", "--host=fast.example.com", "--yes")).To(Equal("Replayed 18,000 failures.\n"))
	})
})
