package assets

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onsi/gomega"
	clocktesting "k8s.io/utils/clock/testing"
)

// output may be read while it is written.
type output struct {
	mu   sync.Mutex
	text strings.Builder
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

func TestProgressInALogIsALinePerStageAndOneEveryTenSeconds(t *testing.T) {
	g := gomega.NewWithT(t)
	out := &output{}
	clock := clocktesting.NewFakeClock(time.Now())
	p := newProgress(out, clock)
	p.state("built %d", 1)
	p.state("built %d", 2)
	p.state("linked")
	want := "built 1 (0s)\nlinked (0s)\n"
	g.Expect(out.String()).To(gomega.Equal(want))

	clock.Step(9 * time.Second)
	p.state("built %d", 3)
	want += "built 3 (9s)\n"
	g.Expect(out.String()).To(gomega.Equal(want))

	p.state("built %d", 4)
	clock.Step(time.Second)
	want += "built 4 (10s)\n"
	g.Eventually(out.String).Should(gomega.Equal(want))
	p.close()
	g.Expect(out.String()).To(gomega.Equal(want))
}

func TestProgressOnATerminalStaysOnOneLine(t *testing.T) {
	g := gomega.NewWithT(t)
	out := &output{}
	clock := clocktesting.NewFakeClock(time.Now())
	p := newProgress(out, clock)
	p.terminal = true
	p.state("built %d", 1)
	p.state("built %d", 2)
	p.close()
	g.Expect(out.String()).To(gomega.Equal("\rbuilt 1 (0s)\x1b[K" + "\rbuilt 2 (0s)\x1b[K\n"))
}

func TestProgressWithoutAWriterIsSilent(*testing.T) {
	p := newProgress(nil, clocktesting.NewFakeClock(time.Now()))
	p.state("nobody sees this")
	p.close()
}
