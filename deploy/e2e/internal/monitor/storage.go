package monitor

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
)

// memory keeps all samples. It may be used from several goroutines.
type memory struct {
	mu     sync.Mutex
	series map[string]*series // by labels
}

type series struct {
	labels  labels.Labels
	samples []chunks.Sample
}

func newMemory() *memory { return &memory{series: map[string]*series{}} }

// append adds a sample, which must be newer than the others of its series.
func (m *memory) append(l labels.Labels, at time.Time, value float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := l.String()
	s := m.series[key]
	if s == nil {
		s = &series{labels: l}
		m.series[key] = s
	}
	s.samples = append(s.samples, sample{at: at.UnixMilli(), value: value})
}

// Querier implements storage.Queryable.
func (m *memory) Querier(int64, int64) (storage.Querier, error) { return querier{m}, nil }

type querier struct{ *memory }

// Select implements storage.Querier. The engine takes the samples that it wants.
func (q querier) Select(_ context.Context, _ bool, _ *storage.SelectHints,
	matchers ...*labels.Matcher,
) storage.SeriesSet {
	q.mu.Lock()
	defer q.mu.Unlock()
	set := &seriesSet{}
	for _, key := range slices.Sorted(maps.Keys(q.series)) {
		s := q.series[key]
		if !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(s.labels.Get(m.Name)) }) {
			set.series = append(set.series, storage.NewListSeries(s.labels, slices.Clone(s.samples)))
		}
	}
	return set
}

// LabelValues implements storage.Querier. No query needs it.
func (querier) LabelValues(context.Context, string, *storage.LabelHints, ...*labels.Matcher) ([]string,
	annotations.Annotations, error,
) {
	return nil, nil, nil
}

// LabelNames implements storage.Querier. No query needs it.
func (querier) LabelNames(context.Context, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations,
	error,
) {
	return nil, nil, nil
}

// Close implements storage.Querier.
func (querier) Close() error { return nil }

// seriesSet implements storage.SeriesSet.
type seriesSet struct {
	series []storage.Series
	next   int
}

func (s *seriesSet) Next() bool {
	s.next++
	return s.next <= len(s.series)
}
func (s *seriesSet) At() storage.Series                { return s.series[s.next-1] }
func (s *seriesSet) Err() error                        { return nil }
func (s *seriesSet) Warnings() annotations.Annotations { return nil }

// sample implements chunks.Sample for numbers.
type sample struct {
	at    int64 // milliseconds
	value float64
}

func (s sample) T() int64                      { return s.at }
func (s sample) ST() int64                     { return 0 }
func (s sample) F() float64                    { return s.value }
func (s sample) H() *histogram.Histogram       { return nil }
func (s sample) FH() *histogram.FloatHistogram { return nil }
func (s sample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (s sample) Copy() chunks.Sample           { return s }
