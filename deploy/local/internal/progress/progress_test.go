package progress

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
)

// display runs a test with fake time and a display on a terminal with some columns, or on none.
func display(t *testing.T, columns int, test func(g *gomega.WithT, out *gbytes.Buffer, p *Progress)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		out := gbytes.NewBuffer()
		test(gomega.NewWithT(t), out, newProgress(out, columns))
	})
}

// pass lets fake time pass.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func TestALogHasALinePerStageAndOneEveryTenSeconds(t *testing.T) {
	display(t, 0, func(g *gomega.WithT, out *gbytes.Buffer, p *Progress) {
		part := p.Part()
		part.Display("built %d", 1)
		part.Display("built %d", 2)
		part.Display("linked")
		want := "built 1 (0s)\nlinked (0s)\n"
		g.Expect(string(out.Contents())).To(gomega.Equal(want))

		pass(9 * time.Second)
		part.Display("built %d", 3)
		want += "built 3 (9s)\n"
		g.Expect(string(out.Contents())).To(gomega.Equal(want))

		part.Display("built %d", 4)
		pass(time.Second)
		want += "built 4 (10s)\n"
		g.Expect(string(out.Contents())).To(gomega.Equal(want))
		p.Close()
		g.Expect(string(out.Contents())).To(gomega.Equal(want))
	})
}

func TestTwoJobsShareALineAndAnEstimate(t *testing.T) {
	display(t, 0, func(g *gomega.WithT, out *gbytes.Buffer, p *Progress) {
		one, two := p.Part(), p.Part()
		one.Count("one", 0, 100)
		two.Count("two", 1, 100)
		pass(9 * time.Second)
		one.Count("one", 60, 100)
		two.Count("two", 40, 100)
		pass(11 * time.Second)
		g.Expect(string(out.Contents())).
			To(gomega.HaveSuffix("one: 60 of 100 packages; two: 40 of 100 packages (20s, about 20s left)\n"))
		one.Count("one", 61, 100)
		two.Display("two: linking")
		g.Expect(string(out.Contents())).To(
			gomega.HaveSuffix("one: 61 of 100 packages; two: linking (20s, about 10s left)\n"))
		p.Close()
	})
}

func TestATerminalHasOneLineThatFits(t *testing.T) {
	display(t, 12, func(g *gomega.WithT, out *gbytes.Buffer, p *Progress) {
		part := p.Part()
		part.Display("built %d", 1)
		part.Display("built %d", 2)
		p.Close()
		g.Expect(string(out.Contents())).To(gomega.Equal("\rbuilt 1 (0s\x1b[K" + "\rbuilt 2 (0s\x1b[K\n"))
	})
}

func TestANoteStays(t *testing.T) {
	display(t, 40, func(g *gomega.WithT, out *gbytes.Buffer, p *Progress) {
		part := p.Part()
		part.Display("looking")
		part.Note("found %d", 3)
		p.Close()
		g.Expect(string(out.Contents())).
			To(gomega.Equal("\rlooking (0s)\x1b[K" + "\r\x1b[Kfound 3\n" + "\rlooking (0s)\x1b[K\n"))
	})
}

func TestWithoutAWriterItIsSilent(*testing.T) {
	p := newProgress(nil, 0)
	p.Part().Display("read by no one")
	p.Close()
}
