package progress

import (
	"testing"
	"time"

	"github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	clocktesting "k8s.io/utils/clock/testing"
)

// start starts a display on a terminal with some columns, or none.
func start(t *testing.T, columns int) (*gomega.WithT, *gbytes.Buffer, *clocktesting.FakeClock, *Progress) {
	t.Helper()
	out, clock := gbytes.NewBuffer(), clocktesting.NewFakeClock(time.Now())
	return gomega.NewWithT(t), out, clock, newProgress(out, clock, columns)
}

func TestALogHasALinePerStageAndOneEveryTenSeconds(t *testing.T) {
	g, out, clock, p := start(t, 0)
	part := p.Part()
	part.Display("built %d", 1)
	part.Display("built %d", 2)
	part.Display("linked")
	want := "built 1 (0s)\nlinked (0s)\n"
	g.Expect(string(out.Contents())).To(gomega.Equal(want))

	clock.Step(9 * time.Second)
	part.Display("built %d", 3)
	want += "built 3 (9s)\n"
	g.Expect(string(out.Contents())).To(gomega.Equal(want))

	part.Display("built %d", 4)
	clock.Step(time.Second)
	want += "built 4 (10s)\n"
	g.Eventually(func() string { return string(out.Contents()) }).Should(gomega.Equal(want))
	p.Close()
	g.Expect(string(out.Contents())).To(gomega.Equal(want))
}

func TestTwoJobsShareALineAndAnEstimate(t *testing.T) {
	g, out, clock, p := start(t, 0)
	one, two := p.Part(), p.Part()
	one.Count("one", 0, 100)
	two.Count("two", 1, 100)
	clock.Step(9 * time.Second)
	one.Count("one", 60, 100)
	two.Count("two", 40, 100)
	clock.Step(11 * time.Second)
	g.Eventually(func() string { return string(out.Contents()) }).
		Should(gomega.HaveSuffix("one: 60 of 100 packages; two: 40 of 100 packages (20s, about 20s left)\n"))
	one.Count("one", 61, 100)
	two.Display("two: linking")
	g.Expect(string(out.Contents())).To(gomega.HaveSuffix("one: 61 of 100 packages; two: linking (20s, about 10s left)\n"))
	p.Close()
}

func TestATerminalHasOneLineThatFits(t *testing.T) {
	g, out, _, p := start(t, 12)
	part := p.Part()
	part.Display("built %d", 1)
	part.Display("built %d", 2)
	p.Close()
	g.Expect(string(out.Contents())).To(gomega.Equal("\rbuilt 1 (0s\x1b[K" + "\rbuilt 2 (0s\x1b[K\n"))
}

func TestANoteStays(t *testing.T) {
	g, out, _, p := start(t, 40)
	part := p.Part()
	part.Display("looking")
	part.Note("found %d", 3)
	p.Close()
	g.Expect(string(out.Contents())).
		To(gomega.Equal("\rlooking (0s)\x1b[K" + "\r\x1b[Kfound 3\n" + "\rlooking (0s)\x1b[K\n"))
}

func TestWithoutAWriterItIsSilent(*testing.T) {
	p := newProgress(nil, clocktesting.NewFakeClock(time.Now()), 0)
	p.Part().Display("read by no one")
	p.Close()
}
