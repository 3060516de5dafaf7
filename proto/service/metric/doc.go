// Package metric makes the metrics of a service by one scheme.
//
// A name is curlmethat_<service>_<noun>_<unit>, with _total at the end of
// counters, in base units. A label has a closed set of values, all of which
// are there from the start, so that a rate has a zero to begin with; none of
// them ever holds a URL, host, namespace or object, which tenants choose. A
// histogram has classic buckets and native ones.
//
// What is made is remembered as a Definition, from which the page about all
// metrics is written.
package metric
