// Package deadletter presents the dead letters of the pipeline.
package deadletter

import (
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
	"github.com/kv8s/curl-me-that/proto/annotation/duration"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/pipeline/operate"
)

// Record is a dead letter as programs read it.
type Record struct {
	// ID is the sequence in CURL_FAILURES.
	ID uint64 `json:"id"`
	// Reason as in Events.
	Reason string `json:"reason"`
	// Host of the URL.
	Host string `json:"host,omitempty"`
	// Namespace, ConfigMap and Key that failed.
	Namespace string `json:"namespace,omitempty"`
	ConfigMap string `json:"configMap,omitempty"`
	Key       string `json:"key,omitempty"`
	// UID of the ConfigMap.
	UID string `json:"uid,omitempty"`
	// URL without its query.
	URL string `json:"url,omitempty"`
	// Refresh interval, if any.
	Refresh string `json:"refresh,omitempty"`
	// Status of the last answer, if there was one.
	Status int32 `json:"status,omitempty"`
	// Attempts made in the round.
	Attempts uint32 `json:"attempts,omitempty"`
	// FirstFailedAt is when the unbroken row of failures began.
	FirstFailedAt *time.Time `json:"firstFailedAt,omitempty"`
	// LastFailedAt is when the last attempt failed.
	LastFailedAt *time.Time `json:"lastFailedAt,omitempty"`
	// KeptAt is when the entry was kept.
	KeptAt time.Time `json:"keptAt"`
	// ReplayOf is the failure whose replay led here.
	ReplayOf uint64 `json:"replayOf,omitempty"`
	// TraceID of the trace in which it failed, if it was traced.
	TraceID string `json:"traceID,omitempty"`
	// Now is what has become of the key since, if that was asked for.
	Now string `json:"now,omitempty"`
	// Subject of a message that could not be handled.
	Subject string `json:"subject,omitempty"`
}

// NewRecord returns what programs read of a dead letter.
func NewRecord(f operate.DeadLetter) Record {
	want, detail := f.Message.GetWant(), f.Message.GetFailure()
	r := Record{
		ID: f.ID, Reason: f.Reason, Host: f.Host,
		Namespace: f.Key.Namespace, ConfigMap: f.Key.Name, Key: f.Key.Key, UID: want.GetUid(),
		URL: WithoutQuery(want.GetUrl()), Status: detail.GetStatusCode(), Attempts: detail.GetAttempts(),
		FirstFailedAt: when(detail.GetFirstFailedAt()), LastFailedAt: when(f.Message.GetLastFailedAt()), KeptAt: f.At.UTC(),
		ReplayOf: f.Message.GetReplayOf(), Subject: f.Message.GetSubject(),
	}
	if span := pipeline.ParseTraceparent(f.Message.GetTraceparent()); span.IsValid() {
		r.TraceID = span.TraceID().String()
	}
	if refresh := want.GetRefresh().AsDuration(); refresh > 0 {
		r.Refresh = duration.Format(refresh)
	}
	return r
}

// Name of a failure for -o name.
func Name(id uint64) string { return "failure/" + strconv.FormatUint(id, 10) }

// Columns of a listing of failures.
func Columns() []printer.Column {
	return printer.Dropping(printer.Columns("ID", "AGE", "REASON", "HOST", "NAMESPACE", "CONFIGMAP", "KEY", "NOW", "ATTEMPTS",
		"", "FAILING SINCE", "REPLAY OF", "URL"), "ATTEMPTS", "HOST", "AGE")
}

// Row of a listing of failures.
func (r Record) Row(now time.Time) printer.Row {
	row := printer.Row{Name: Name(r.ID), Object: r, Cells: []printer.Cell{
		printer.Number(r.ID), printer.Text(printer.Age(now, r.KeptAt)), printer.In(printer.Red, Reason(r.Reason, r.Status)), printer.Text(r.Host),
		printer.Text(r.Namespace), printer.Text(r.ConfigMap), printer.Text(r.Key), printer.Text(r.Now), printer.Number(r.Attempts),
		printer.Text(""), optional(r.ReplayOf), printer.Text(r.URL),
	}}
	if r.FirstFailedAt != nil {
		row.Cells[9] = printer.Text(printer.Age(now, *r.FirstFailedAt))
	}
	return row
}

// Reason returns a reason with the HTTP status beside it, if there is one.
func Reason(reason string, status int32) string {
	if status == 0 {
		return reason
	}
	return reason + " " + strconv.Itoa(int(status))
}

func optional(n uint64) printer.Cell {
	if n == 0 {
		return printer.Text("")
	}
	return printer.Number(n)
}

// Snippet returns what the server sent, so that it can be printed: the
// first lines, without control characters.
func Snippet(raw []byte) string {
	if !utf8.Valid(raw) {
		return strconv.Itoa(len(raw)) + " bytes that are no text"
	}
	const most = 5
	lines := strings.Split(strings.TrimSpace(string(raw)), "\n")
	if len(lines) > most {
		lines = append(lines[:most], "…")
	}
	for i, line := range lines {
		lines[i] = printer.Printable(strings.TrimRight(line, "\r"))
	}
	return strings.Join(lines, "\n")
}

// WithoutQuery returns a URL without userinfo, query and fragment, which may
// hold secrets.
func WithoutQuery(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return ""
	}
	hidden := u.RawQuery != ""
	u.User, u.RawQuery, u.Fragment, u.RawFragment = nil, "", "", ""
	text := u.String()
	if hidden {
		text += "?…"
	}
	return text
}

func when(t *timestamppb.Timestamp) *time.Time {
	if t == nil {
		return nil
	}
	at := t.AsTime()
	return &at
}
