package curlctl_test

import (
	"bufio"
	"io"
	"net/http"
	"regexp"
	"testing"
	"time"

	"github.com/kv8s/curl-me-that/deploy/curlctl"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/pipeline/natstest"
)

// BenchmarkConsole reads pages with 20,000 failures of as many keys, one of ten
// of them of a slow host. Its goals are 25 ms for the first page and 60 ms for
// one of a rare filter.
func BenchmarkConsole(b *testing.B) {
	s, err := natstest.Run(natstest.Options{Listen: true})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	js, closeConn, err := s.JetStream()
	if err != nil {
		b.Fatal(err)
	}
	defer closeConn()
	epoch, err := pipeline.Ensure(b.Context(), js, pipeline.Topology{})
	if err != nil {
		b.Fatal(err)
	}
	if err := fill(js, epoch); err != nil {
		b.Fatal(err)
	}
	<-js.PublishAsyncComplete()
	cmd := curlctl.CommandAt("curlctl", time.Now)
	cmd.SetArgs([]string{"console", "--auth=none", "--nats-url", s.URL()})
	reader, writer := io.Pipe()
	cmd.SetOut(writer)
	go func() { _ = cmd.ExecuteContext(b.Context()) }() // it ends with the benchmark
	line, err := bufio.NewReader(reader).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	base := regexp.MustCompile(`http://[0-9.:]+`).FindString(line)
	for _, path := range []string{"/", "/failures", "/failures?host=slow.example.com", "/failures?name=cm-00042", "/hosts", "/wants"} {
		b.Run(path, func(b *testing.B) {
			size := 0
			for b.Loop() {
				r, err := http.Get(base + path)
				if err != nil {
					b.Fatal(err)
				}
				text, _ := io.ReadAll(r.Body)
				_ = r.Body.Close()
				if size = len(text); r.StatusCode != http.StatusOK {
					b.Fatal(r.Status)
				}
				b.StopTimer()
				<-time.After(time.Second / 20) // the bound of requests
				b.StartTimer()
			}
			b.ReportMetric(float64(size), "bytes")
		})
	}
}
