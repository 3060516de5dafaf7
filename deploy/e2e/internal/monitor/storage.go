package monitor

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"
)

// memory keeps all samples. It is safe for concurrent use.
type memory struct {
	mu     sync.Mutex
	series map[string]promql.Series // by labels
}

// append adds a sample, which must be newer than the others in its series.
func (m *memory) append(l labels.Labels, at time.Time, value float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := l.String()
	points := append(m.series[key].Floats, promql.FPoint{T: at.UnixMilli(), F: value})
	m.series[key] = promql.Series{Metric: l, Floats: points}
}

// queryable returns the samples as storage for the engine, which picks the time range itself.
func (m *memory) queryable() storage.Queryable {
	return &storage.MockQueryable{MockQuerier: &storage.MockQuerier{
		SelectMockFunction: func(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
			return m.selected(matchers)
		},
	}}
}

func (m *memory) selected(matchers []*labels.Matcher) *seriesSet {
	m.mu.Lock()
	defer m.mu.Unlock()
	set := &seriesSet{}
	for _, key := range slices.Sorted(maps.Keys(m.series)) {
		s := m.series[key]
		if !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(s.Metric.Get(m.Name)) }) {
			set.series = append(set.series, promql.NewStorageSeries(s))
		}
	}
	return set
}

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
