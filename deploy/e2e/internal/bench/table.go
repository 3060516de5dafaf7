package bench

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// WriteTable writes the report for people.
func (r *Report) WriteTable(w io.Writer) error {
	t := &table{Writer: tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
	r.writeSetting(t)
	r.writeRounds(t)
	r.writeIdle(t)
	r.writeMemory(t)
	t.title("goals")
	for _, g := range r.Goals {
		verdict, sign, bound := "met", "≤", g.AtMost
		if !g.Met {
			verdict = "MISSED"
		}
		if g.AtLeast > 0 {
			sign, bound = "≥", g.AtLeast
		}
		t.row(g.Name, "%.4g, %s %.4g: %s", g.Value, sign, bound, verdict)
	}
	return t.Flush()
}

func (r *Report) writeSetting(t *table) {
	s := r.Setting
	t.title("setting")
	t.row("time", "%s", s.Time.Format("2006-01-02 15:04:05Z"))
	t.row("machine", "%s, %d cores, %s", s.System, s.Cores, s.Go)
	t.row("Kubernetes", "%s", s.Kubernetes)
	urls := "a URL each"
	if s.SharedURL {
		urls = "one URL for all"
	}
	t.row("ConfigMaps", "%d in a round, bodies of %d bytes, %s", s.N, s.Bytes, urls)
}

func (r *Report) writeRounds(t *table) {
	t.title("throughput")
	for i := range r.Rounds {
		round := &r.Rounds[i]
		t.row(fmt.Sprintf("%d, %s", i+1, round.Placement), "pipeline %.0f/s, bare patches %.0f/s before and %.0f/s after: %.0f %%",
			round.Pipeline.PerSecond, round.Before.PerSecond, round.After.PerSecond, 100*round.Ratio)
	}
	for _, p := range sorted(r.Middle) {
		middle := &r.Rounds[r.Middle[p]]
		pipeline := &middle.Pipeline
		t.row(fmt.Sprintf("in %d, the middle one of %s", r.Middle[p]+1, p), "")
		t.row("  from the first one filled", "%.0f/s, %.0f %%", pipeline.PerSecondFilling, 100*middle.RatioFilling)
		t.row("  bound by processor time", "%.0f %%", 100*middle.Bound)
		t.row("  since the watcher's start", "first GET %.2f s, first filled %.2f s, last GET %.2f s, last filled %.2f s",
			pipeline.FirstGetSeconds, pipeline.FirstFillSeconds, pipeline.LastGetSeconds, pipeline.Seconds)
		t.row("  GETs", "%d", pipeline.Gets)
		t.cost(pipeline.Cost)
		t.row("  CPU ms per bare patch", "before %s; after %s", cpu(middle.Before.Cost), cpu(middle.After.Cost))
	}
}

func (r *Report) writeIdle(t *table) {
	if r.Idle == nil {
		return
	}
	t.title(fmt.Sprintf("annotation to data when idle, ms, %d ConfigMaps", r.Idle.ConfigMaps))
	t.row("in all", "%s", r.Idle.Total)
	t.row("above the server's time", "%s", r.Idle.AboveServer)
	t.row("  to the GET", "%s", r.Idle.ToGet)
	t.row("  from its answer", "%s", r.Idle.ToFill)
	t.cost(r.Idle.Cost)
}

func (r *Report) writeMemory(t *table) {
	t.title("memory, RSS in MiB")
	for _, name := range sorted(r.Memory) {
		t.row(name, "%.1f, peak %.1f", float64(r.Memory[name].RSS)/mebibyte, float64(r.Memory[name].PeakRSS)/mebibyte)
	}
	if len(r.Memory) == 0 {
		t.row("unknown", "this operating system does not report it")
	}
	if f := r.Foreign; f != nil {
		t.row("watcher, alone among others", "%.1f, peak %.1f; %d foreign ConfigMaps of %d bytes, ready in %.1f s",
			float64(f.Watcher.RSS)/mebibyte, float64(f.Watcher.PeakRSS)/mebibyte, f.ConfigMaps, f.Bytes, f.ReadySeconds)
	}
}

// String lists the quantiles.
func (q Quantiles) String() string {
	return fmt.Sprintf("p50 %.1f  p90 %.1f  p99 %.1f  max %.1f", q.P50, q.P90, q.P99, q.Max)
}

// table has two columns. Errors are returned when it is flushed.
type table struct{ *tabwriter.Writer }

func (t *table) title(text string) { fmt.Fprintf(t, "\n%s\n", text) }

func (t *table) row(name, format string, arguments ...any) {
	fmt.Fprintf(t, "  %s\t%s\n", name, fmt.Sprintf(format, arguments...))
}

func (t *table) cost(c Cost) {
	var calls []string
	for _, name := range sorted(c.Calls) {
		calls = append(calls, fmt.Sprintf("%s: %d", name, c.Calls[name]))
	}
	t.row("  API calls per ConfigMap", "%.3f (%s)", c.CallsPerConfigMap, strings.Join(calls, ", "))
	t.row("  CPU ms per ConfigMap", "%s", cpu(c))
}

// cpu lists what each program took.
func cpu(c Cost) string {
	var list []string
	for _, name := range sorted(c.CPUPerConfigMap) {
		list = append(list, fmt.Sprintf("%s %.2f", name, c.CPUPerConfigMap[name]))
	}
	return strings.Join(list, ", ")
}
