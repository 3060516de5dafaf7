package world

import (
	"context"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/origin"
	"github.com/kv8s/curl-me-that/deploy/testkit/promise"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/proto/annotation"
)

const (
	// drainTimeout is how long a service may take to stop.
	drainTimeout = 30 * time.Second
	// dumpLines is the number of lines of each log that a failed spec prints.
	dumpLines = 80
)

// check stops the services in order and checks the history against the promises. It skips
// specs that failed.
func (w *World) check(ctx SpecContext) {
	if CurrentSpecReport().Failed() {
		return
	}
	if !w.unfinished {
		w.EventuallyQuiet(ctx)
	}
	w.stopAll(ctx)
	var broken []string
	for _, home := range append([]*World{w}, w.Tenants...) {
		home.EventuallyCaughtUp(ctx)
		broken = append(broken, w.Checker().Check(home.History.Lives())...)
		home.checkWords(ctx)
	}
	Expect(broken).To(ConsistOf(w.breaks...), "broken promises")
}

// Breaks expects a broken promise with this text. Any other broken promise fails the spec.
func (w *World) Breaks(found string) { w.breaks = append(w.breaks, ContainSubstring(found)) }

// Checker returns the checker of promises for this world.
func (w *World) Checker() promise.Checker {
	GinkgoHelper()
	return promise.Checker{Grammar: suitetest.Must(annotation.New(annotation.Defaults())), Served: w.served}
}

// Unfinished allows the spec to end with work in progress.
func (w *World) Unfinished() { w.unfinished = true }

// stopAll sends SIGTERM to all running services at once.
func (w *World) stopAll(ctx context.Context) {
	GinkgoHelper()
	var group sync.WaitGroup
	for _, s := range w.all {
		if s.Running() {
			group.Go(func() {
				defer GinkgoRecover()
				s.ShouldStop(ctx)
			})
		}
	}
	group.Wait()
}

// ShouldStop stops the service with SIGTERM and expects exit code 0 within 30 s.
func (s *Service) ShouldStop(ctx context.Context) {
	GinkgoHelper()
	ctx, cancel := context.WithTimeout(ctx, drainTimeout)
	defer cancel()
	Expect(s.Stop(ctx)).To(BeZero(), "exit code of %s, whose last line is: %s", s.Name, s.Log.Last())
}

// checkWords fails if Events or logs contain the body of an error response, an IP address of a host, or a
// panic.
func (w *World) checkWords(ctx context.Context) {
	GinkgoHelper()
	for _, e := range w.Events(ctx) {
		Expect(e.Note).NotTo(Or(ContainSubstring(origin.ServerText), ContainSubstring("127.0.0.1")), "note of Event %s",
			e.Reason)
	}
	for _, s := range w.all {
		Expect(s.Log.Matching(origin.ServerText)).To(BeEmpty(), "log of %s", s.Name)
		for _, line := range s.Log.Matching("127.0.0.1") { // the addresses of brokers are in the flags
			for _, broker := range append(w.beside, w.broker) {
				line = strings.ReplaceAll(line, broker, "")
			}
			Expect(line).NotTo(ContainSubstring("127.0.0.1"), "log of %s", s.Name)
		}
		for _, word := range []string{"panic:", "fatal error:", "DATA RACE", "goroutine "} {
			Expect(s.Log.Matching(word)).To(BeEmpty(), "log of %s", s.Name)
		}
	}
}

// kill ends all running services.
func (w *World) kill() {
	for _, s := range w.all {
		if s.Running() {
			_ = s.Kill() // it may have exited meanwhile
		}
	}
}

// dump prints the end of each log if the spec failed.
func (w *World) dump() {
	if !CurrentSpecReport().Failed() {
		return
	}
	for _, s := range w.all {
		lines := s.Log.Lines()
		lines = lines[max(0, len(lines)-dumpLines):]
		AddReportEntry("log of "+s.Name, ReportEntryVisibilityFailureOrVerbose, strings.Join(lines, "\n"))
	}
}
