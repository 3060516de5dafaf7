package world

import (
	"bufio"
	"context"
	"net/http"
	"strconv"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// Metric returns the sum of all series of a metric of the service whose labels
// contain what is given, such as `outcome="ok"`.
func (s *Service) Metric(ctx context.Context, name string, labels ...string) float64 {
	GinkgoHelper()
	text, code, err := get(ctx, "http://"+s.Address+"/metrics")
	Expect(err).NotTo(HaveOccurred())
	Expect(code).To(Equal(http.StatusOK))
	sum := 0.0
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() {
		if v, ok := sample(lines.Text(), name, labels); ok {
			sum += v
		}
	}
	return sum
}

// sample reads a line of the Prometheus text format if it is of that metric.
func sample(line, name string, labels []string) (float64, bool) {
	rest, found := strings.CutPrefix(line, name)
	if !found || rest == "" || rest[0] != ' ' && rest[0] != '{' {
		return 0, false
	}
	space := strings.LastIndexByte(rest, ' ')
	for _, l := range labels {
		if !strings.Contains(rest[:space], l) {
			return 0, false
		}
	}
	v, err := strconv.ParseFloat(rest[space+1:], 64)
	return v, err == nil
}
