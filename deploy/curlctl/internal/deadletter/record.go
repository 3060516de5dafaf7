// Package deadletter formats and selects dead letters, which users know as failures.
package deadletter

import (
	"cmp"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
	"github.com/kv8s/curl-me-that/deploy/curlctl/operate"
	"github.com/kv8s/curl-me-that/proto/annotation/duration"
	"github.com/kv8s/curl-me-that/proto/condition"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// Record is a failure in JSON and YAML output.
type Record struct {
	// ID is the sequence in CURL_FAILURES.
	ID uint64 `json:"id"`
	// Reason as in Events.
	Reason string `json:"reason"`
	// Host of the URL.
	Host      string `json:"host,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	ConfigMap string `json:"configMap,omitempty"`
	Key       string `json:"key,omitempty"`
	// UID of the ConfigMap.
	UID string `json:"uid,omitempty"`
	// URL without its query.
	URL string `json:"url,omitempty"`
	// Refresh interval, if any.
	Refresh string `json:"refresh,omitempty"`
	// Status of the last response, if there was one.
	Status int32 `json:"status,omitempty"`
	// Sentence as in Events.
	Sentence string `json:"message,omitempty"`
	// Attempts in the last round.
	Attempts uint32 `json:"attempts,omitempty"`
	// FirstFailedAt is the first failure since the last success.
	FirstFailedAt time.Time `json:"firstFailedAt,omitzero"`
	LastFailedAt  time.Time `json:"lastFailedAt,omitzero"`
	// KeptAt is when the dead letter was stored.
	KeptAt time.Time `json:"keptAt"`
	// ReplayOf is the failure whose replay failed.
	ReplayOf uint64 `json:"replayOf,omitempty"`
	// TraceID of the failed attempt, if it was traced.
	TraceID string `json:"traceID,omitempty"`
	// Now is the current state of the key, if it was looked up.
	Now string `json:"now,omitempty"`
	// Subject of a message that could not be handled.
	Subject string `json:"subject,omitempty"`
}

// NewRecord returns the record of a dead letter.
func NewRecord(f operate.DeadLetter) Record {
	want, detail := f.Message.GetWant(), f.Message.GetFailure()
	r := Record{
		ID: f.ID, Reason: f.Reason, Host: f.Host,
		Namespace: f.Key.Namespace, ConfigMap: f.Key.Name, Key: f.Key.Key, UID: want.GetUid(),
		URL: WithoutQuery(want.GetUrl()), Status: detail.GetStatusCode(), Attempts: detail.GetAttempts(),
		FirstFailedAt: timeOf(detail.GetFirstFailedAt()), LastFailedAt: timeOf(f.Message.GetLastFailedAt()),
		KeptAt: f.At.UTC(), ReplayOf: f.Message.GetReplayOf(), Subject: f.Message.GetSubject(),
	}
	if detail != nil {
		r.Sentence = condition.Sentence(want, detail)
	}
	if span := pipeline.ParseTraceparent(f.Message.GetTraceparent()); span.IsValid() {
		r.TraceID = span.TraceID().String()
	}
	if refresh := want.GetRefresh().AsDuration(); refresh > 0 {
		r.Refresh = duration.Format(refresh)
	}
	return r
}

// Name returns the name of a failure for -o name.
func Name(id uint64) string { return "failure/" + strconv.FormatUint(id, 10) }

// Table returns the columns of a list of failures.
func Table() printer.Table {
	return printer.Table{
		Columns: "ID|AGE|REASON|HOST|NAMESPACE|CONFIGMAP|KEY|NOW|ATTEMPTS", Wide: "FAILING SINCE|REPLAY OF|URL|MESSAGE",
		Drop: "ATTEMPTS|HOST|AGE",
	}
}

// Row returns the row of Table.
func (r Record) Row(now time.Time) printer.Row {
	replayOf := ""
	if r.ReplayOf > 0 {
		replayOf = strconv.FormatUint(r.ReplayOf, 10)
	}
	return printer.Row{Name: Name(r.ID), Object: r, Cells: printer.Cells(
		r.ID, printer.Age(now, r.KeptAt), printer.In(printer.Red, Reason(r.Reason, r.Status)), r.Host,
		r.Namespace, r.ConfigMap, r.Key, r.Now, r.Attempts, printer.Age(now, r.FirstFailedAt), replayOf, r.URL, r.Sentence,
	)}
}

// Reason returns a reason with the HTTP status, if there is one.
func Reason(reason string, status int32) string {
	if status == 0 {
		return reason
	}
	return reason + " " + strconv.Itoa(int(status))
}

// Snippet returns the first lines of a response, if it is text.
func Snippet(raw []byte) []string {
	if len(raw) == 0 {
		return nil
	}
	if !utf8.Valid(raw) {
		return []string{strconv.Itoa(len(raw)) + " bytes that are not text"}
	}
	const most = 5
	lines := strings.Split(strings.TrimSpace(string(raw)), "\n")
	if len(lines) > most {
		lines = append(lines[:most], "…")
	}
	for i, line := range lines {
		lines[i] = printer.Printable(strings.TrimRight(line, "\r"))
	}
	return lines
}

// WithoutQuery returns a URL without userinfo, query and fragment, which may hold secrets.
func WithoutQuery(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return ""
	}
	text := (&url.URL{Scheme: u.Scheme, Host: u.Host}).String() + cmp.Or(u.RawPath, u.EscapedPath())
	if u.RawQuery != "" {
		text += "?…"
	}
	return text
}

func timeOf(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}
