package process_test

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onsi/gomega/gbytes"
	"github.com/rs/zerolog"

	"github.com/kv8s/curl-me-that/proto/process"
)

// entry is a written line.
type entry struct {
	Level, Kind, Message string
	N, Omitted           int
}

func take(t *testing.T, out *gbytes.Buffer) []entry {
	t.Helper()
	var entries []entry
	for line := range strings.Lines(string(out.Contents())) {
		var e entry
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		entries = append(entries, e)
	}
	if err := out.Clear(); err != nil {
		t.Fatal(err)
	}
	return entries
}

func TestABurstIsLimitedAndTheOmittedLinesAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := gbytes.NewBuffer()
		log := process.NewSampledLog(zerolog.New(out))
		for n := range 1000 {
			log.Line(zerolog.InfoLevel, "retry").Int("n", n).Msg("failed")
		}
		log.Line(zerolog.WarnLevel, "gave_up").Msg("another kind is not suppressed")
		log.Line(zerolog.WarnLevel, "retry").Msg("another level is not suppressed")
		time.Sleep(process.LogPeriod) //nolint:forbidigo // no time passes in the bubble of synctest
		synctest.Wait()
		entries := take(t, out)
		if len(entries) != process.LogBurst+3 {
			t.Fatalf("%d lines", len(entries))
		}
		last := entries[len(entries)-1]
		if want := (entry{
			Level: "info", Kind: "retry", Omitted: 1000 - process.LogBurst,
			Message: "omitted similar lines",
		}); last != want {
			t.Errorf("last line is %+v", last)
		}
		if n := entries[process.LogBurst-1].N; n != process.LogBurst-1 {
			t.Errorf("the first lines should be written, not line %d", n)
		}
		log.Line(zerolog.InfoLevel, "retry").Int("n", 7).Msg("after the burst")
		if entries := take(t, out); len(entries) != 1 || entries[0].N != 7 {
			t.Errorf("after the burst: %+v", entries)
		}
	})
}

func TestADisabledLevelWritesNothing(t *testing.T) {
	out := gbytes.NewBuffer()
	log := process.NewSampledLog(zerolog.New(out).Level(zerolog.InfoLevel))
	log.Line(zerolog.DebugLevel, "parked").Msg("below the level")
	if entries := take(t, out); len(entries) != 0 {
		t.Errorf("wrote %+v", entries)
	}
}
