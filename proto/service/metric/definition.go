package metric

// Project is what all names of our own metrics begin with.
const Project = "curlmethat"

// Kind of a metric, as Prometheus calls it.
type Kind string

// The kinds.
const (
	Counter   Kind = "counter"
	Gauge     Kind = "gauge"
	Histogram Kind = "histogram"
)

// Label distinguishes the series of a metric.
type Label struct {
	// Name of the label.
	Name string
	// Values that it can have; for an open label, those that are there from
	// the start.
	Values []string
	// Open describes a set of values that others define, such as the status
	// codes of HTTP; empty: Values are all.
	Open string
}

// Of returns a label with a closed set of values.
func Of[S ~string](name string, values ...S) Label {
	l := Label{Name: name, Values: make([]string, len(values))}
	for i, v := range values {
		l.Values[i] = string(v)
	}
	return l
}

// Definition describes a metric.
type Definition struct {
	// Name in full.
	Name string
	// Kind of the metric.
	Kind Kind
	// Help is one sentence for operators.
	Help string
	// Labels in the order in which they are given to series.
	Labels []Label
}
