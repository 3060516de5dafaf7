package overview

import (
	"time"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// Headline says in one line whether the pipeline works, and how many keys do not, now.
func (o Overview) Headline(now time.Time) printer.Cell {
	headline := printer.In(printer.Green, "working")
	switch {
	case o.Paused && o.Resumes != nil:
		headline = printer.In(printer.Yellow, "paused, resumes in "+printer.Until(now, *o.Resumes))
	case o.Paused:
		headline = printer.In(printer.Yellow, "paused until `curlctl resume`")
	case o.Blocked == pipeline.FetcherConsumer:
		headline = printer.In(printer.Red, "stopped: requests wait and no fetcher takes them")
	case o.Blocked != "":
		headline = printer.In(printer.Red, "stopped: results wait and no writer takes them")
	}
	if bad := o.Now.Failing + o.Now.Refused; bad > 0 {
		headline.Colour = printer.Red
	}
	headline.Text += ", " + o.Now.String()
	return headline
}

// Word returns the state that the headline is about.
func (o Overview) Word() string {
	switch {
	case o.Blocked != "" || o.Now.Failing+o.Now.Refused > 0:
		return "failing"
	case o.Paused || o.Now.Stale > 0:
		return "stale"
	}
	return "ok"
}
