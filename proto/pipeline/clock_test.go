package pipeline_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kv8s/curl-me-that/proto/pipeline"
)

func broker() time.Time { return time.Date(2031, 5, 17, 11, 0, 0, 0, time.UTC) }

func TestTheTimeIsUnknownBeforeTheFirstStamp(t *testing.T) {
	if now := pipeline.NewClock().Now(); !now.IsZero() {
		t.Errorf("Now() = %s", now)
	}
}

func TestTheNewestStampWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := pipeline.NewClock()
		c.Observe(broker().Add(-time.Hour)) // it waited in the stream
		c.Observe(broker())
		<-time.After(10 * time.Second)
		c.Observe(broker().Add(2 * time.Second)) // it waited for 8 s
		if now, want := c.Now(), broker().Add(10*time.Second); !now.Equal(want) {
			t.Errorf("Now() = %s, want %s", now, want)
		}
		c.Set(broker())
		if now := c.Now(); !now.Equal(broker()) {
			t.Errorf("Now() = %s after Set", now)
		}
	})
}

func TestRunAsksTheBrokerAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		c := pipeline.NewClock()
		asked, began := 0, time.Now()
		go c.Run(ctx, func(context.Context) (time.Time, error) {
			if asked++; asked == 1 {
				return time.Time{}, errors.New("no consumer yet")
			}
			return broker(), nil
		})
		done := make(chan struct{})
		c.Observe(broker().Add(-time.Hour)) // it waited in the stream
		time.AfterFunc(500*time.Millisecond, func() { close(done) })
		if c.Wait(done) {
			t.Error("a stamp alone makes the time known")
		}
		if !c.Wait(nil) || time.Since(began) != time.Second {
			t.Errorf("the time was known after %s", time.Since(began))
		}
		<-time.After(time.Second)
		if now, want := c.Now(), broker().Add(time.Second); !now.Equal(want) {
			t.Errorf("Now() = %s, want %s", now, want)
		}
		<-time.After(time.Minute)
		synctest.Wait()
		if asked != 3 {
			t.Errorf("asked %d times", asked)
		}
		cancel()
	})
}
