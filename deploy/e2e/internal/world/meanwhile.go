package world

import (
	"context"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
)

// Meanwhile calls do all the time until stop is called.
func Meanwhile(ctx context.Context, do func()) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() {
		defer GinkgoRecover()
		pause := time.NewTicker(10 * time.Millisecond)
		defer pause.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-pause.C:
				do()
			}
		}
	})
	stop = func() { cancel(); running.Wait() }
	DeferCleanup(stop)
	return stop
}
