package metric

// Project is the prefix of all our own metrics.
const Project = "curlmethat"

// Kind of a metric, as in Prometheus.
type Kind string

// Kinds of metrics.
const (
	Counter   Kind = "counter"
	Gauge     Kind = "gauge"
	Histogram Kind = "histogram"
)

// Label distinguishes the series of a metric.
type Label struct {
	// Name of the label.
	Name string
	// Values of the label; for an open label, only the initial ones.
	Values []string
	// Open describes values that others define, such as HTTP status codes; empty if Values are
	// complete.
	Open string
}

// Of returns a label with the given values.
func Of[S ~string](name string, values ...S) Label {
	l := Label{Name: name, Values: make([]string, len(values))}
	for i, v := range values {
		l.Values[i] = string(v)
	}
	return l
}

// Definition describes a metric.
type Definition struct {
	// Name is the full name.
	Name string
	// Kind of the metric.
	Kind Kind
	// Help is one sentence for operators.
	Help string
	// Labels in the order of label values.
	Labels []Label
}
