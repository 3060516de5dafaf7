package curlctl_test

import (
	"bufio"
	"io"
	"net/http"
	"regexp"
	"testing"
	"time"

	"github.com/kv8s/curl-me-that/deploy/curlctl"
)

// BenchmarkConsole reads pages with 20,000 failures of as many keys, a tenth of them of one slow host.
// The goals are 25 ms for the first page and 60 ms for a rare filter.
func BenchmarkConsole(b *testing.B) {
	cmd := curlctl.CommandAt("curlctl", time.Now)
	cmd.SetArgs([]string{"console", "--auth=none", "--nats-url", longHistory(b)})
	reader, writer := io.Pipe()
	cmd.SetOut(writer)
	go func() { _ = cmd.ExecuteContext(b.Context()) }() // it ends with the benchmark
	line, err := bufio.NewReader(reader).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	base := regexp.MustCompile(`http://[0-9.:]+`).FindString(line)
	for _, path := range []string{
		"/", "/failures", "/failures?host=slow.example.com", "/failures?name=cm-00042",
		"/hosts", "/wants",
	} {
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
