package monitor

import (
	"slices"
	"sync"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"
)

// memory keeps all samples. It may be used from several goroutines.
type memory struct {
	mu     sync.Mutex
	series map[string]promql.Series // by labels
}

// append adds a sample, which must be newer than the others of its series.
func (m *memory) append(l labels.Labels, at time.Time, value float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := l.String()
	points := append(m.series[key].Floats, promql.FPoint{T: at.UnixMilli(), F: value})
	m.series[key] = promql.Series{Metric: l, Floats: points}
}

// queryable is the storage of the engine, which takes the samples that it wants.
func (m *memory) queryable() storage.Queryable {
	return &storage.MockQueryable{MockQuerier: &storage.MockQuerier{
		SelectMockFunction: func(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
			return m.selected(matchers)
		},
	}}
}

func (m *memory) selected(matchers []*labels.Matcher) storage.SeriesSet {
	m.mu.Lock()
	defer m.mu.Unlock()
	var sets []storage.SeriesSet
	for _, s := range m.series {
		if !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(s.Metric.Get(m.Name)) }) {
			sets = append(sets, storage.TestSeriesSet(promql.NewStorageSeries(s)))
		}
	}
	return storage.NewMergeSeriesSet(sets, 0, storage.ChainedSeriesMerge) // sorted by labels
}
