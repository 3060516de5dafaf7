package keys

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/kv8s/curl-me-that/deploy/curlctl/broker"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/duration"
	"github.com/kv8s/curl-me-that/proto/failure"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/sentence"
)

// Record is a failure in JSON output.
type Record struct {
	// ID is the sequence in CURL_FAILURES.
	ID uint64 `json:"id"`
	// Reason as in Events.
	Reason string `json:"reason"`
	// Host of the URL.
	Host string `json:"host,omitempty"`
	ConfigMapKey
	Request

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
	// Snippet has the first lines of the response, if they were looked up.
	Snippet string `json:"snippet,omitempty"`
}

// NewRecord returns the record of a dead letter.
func NewRecord(f broker.DeadLetter) Record {
	want, detail := f.Message.GetWant(), f.Message.GetFailure()
	r := Record{
		ID: f.ID, Reason: f.Reason, Host: f.Host, ConfigMapKey: ConfigMapKey(f.Key), Request: RequestOf(want),
		Refresh: formatInterval(want.GetRefresh().AsDuration()),
		Status:  detail.GetStatusCode(), Attempts: detail.GetAttempts(),
		FirstFailedAt: timeOf(detail.GetFirstFailedAt()), LastFailedAt: timeOf(f.Message.GetLastFailedAt()),
		KeptAt: f.At.UTC(), ReplayOf: f.Message.GetReplayOf(), Subject: f.Message.GetSubject(),
	}
	if detail != nil {
		r.Sentence = sentence.Failure(want, detail)
	}
	if span := pipeline.ParseTraceparent(f.Message.GetTraceparent()); span.IsValid() {
		r.TraceID = span.TraceID().String()
	}
	return r
}

// Row returns the row of the failure in lists.
func (r Record) Row(now time.Time) printer.Row {
	return printer.Row{
		Name: "failure/" + strconv.FormatUint(r.ID, 10), Object: r,
		Cells: printer.Cells(
			"ID", r.ID, "AGE", printer.Age(now, r.KeptAt), "REASON", Reason(r.Reason, r.Status), "HOST", r.Host,
			"NAMESPACE", r.Namespace, "CONFIGMAP", r.Name, "KEY", r.Key, "NOW", r.Now, "ATTEMPTS", r.Attempts,
		),
		Wide: printer.Cells(
			"FAILING SINCE", printer.Age(now, r.FirstFailedAt), "REPLAY OF", r.replayOf(), "URL", r.URL, "MESSAGE", r.Sentence,
		),
	}
}

func (r Record) replayOf() string {
	if r.ReplayOf == 0 {
		return ""
	}
	return "failure " + strconv.FormatUint(r.ReplayOf, 10)
}

// Fields returns all details for people.
func (r Record) Fields(now time.Time) []printer.Field {
	return []printer.Field{
		{Name: "Failure", Value: r.ID},
		{Name: "ConfigMap", Value: r.Namespace + "/" + r.Name},
		{Name: "UID", Value: r.UID},
		{Name: "Key", Value: r.Key},
		{Name: "URL", Value: r.URL},
		{Name: "Refresh", Value: r.Refresh},
		{Name: "Reason", Value: strings.TrimSuffix(Reason(r.Reason, r.Status)+": "+r.Sentence, ": ")},
		{Name: "Attempts", Value: r.Attempts},
		{Name: "First failure", Value: printer.Clock(r.FirstFailedAt)},
		{Name: "Last failure", Value: printer.Clock(r.LastFailedAt)},
		{Name: "Kept", Value: printer.Clock(r.KeptAt) + ", " + printer.Age(now, r.KeptAt) + " ago"},
		{Name: "Replay of", Value: r.replayOf()},
		{Name: "Trace", Value: r.TraceID},
		{Name: "Message", Value: r.Subject},
		{Name: "Now", Value: r.Now},
	}
}

// Reason returns a reason with the HTTP status, if there is one.
func Reason(reason string, status int32) string {
	if status == 0 {
		return reason
	}
	return reason + " " + strconv.Itoa(int(status))
}

// Snippet returns the first lines of the response, if it is text.
func Snippet(f broker.DeadLetter) string {
	raw := f.Message.GetSnippet()
	switch {
	case len(raw) == 0:
		return ""
	case !utf8.Valid(raw):
		return strconv.Itoa(len(raw)) + " bytes that are not text"
	}
	const maxLines = 5
	lines := strings.Split(strings.TrimSpace(string(raw)), "\n")
	if len(lines) > maxLines {
		lines = append(lines[:maxLines], "…")
	}
	for i, line := range lines {
		lines[i] = printer.Printable(strings.TrimRight(line, "\r"))
	}
	return strings.Join(lines, "\n")
}

func timeOf(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}

// Selection selects failures in the syntax of flags: by ID, or else by the filter.
type Selection struct {
	IDs []uint64
	// DeadLetterFilter is valid after Parse.
	broker.DeadLetterFilter

	// SinceText and UntilText are a duration before now, such as 2h, or an RFC 3339 time.
	SinceText, UntilText string
}

// Each visits the fields other than IDs by the names of their flags.
func (s *Selection) Each(visit func(flag, help string, value *string)) {
	visit("reason", "only failures with this reason, such as Timeout", &s.Reason)
	visit("host", "only this host", &s.Host)
	visit("namespace", "only this namespace (default: all)", &s.Namespace)
	visit("name", "only ConfigMaps with this name", &s.Name)
	visit("key", "only failures of this key", &s.Key)
	visit("since", "only failures since a time (RFC 3339) or a duration ago, such as 2h", &s.SinceText)
	visit("until", "only failures before a time (RFC 3339) or a duration ago, such as 10m", &s.UntilText)
}

// Words returns the arguments of curlctl that select the same failures.
func (s *Selection) Words() (words []string) {
	for _, id := range s.IDs {
		words = append(words, strconv.FormatUint(id, 10))
	}
	s.Each(func(flag, _ string, value *string) {
		if *value != "" {
			words = append(words, "--"+flag+"="+*value)
		}
	})
	return words
}

// SetIDs parses IDs as lists print them: 12, or failure/12.
func (s *Selection) SetIDs(texts []string) error {
	s.IDs = nil
	for _, text := range texts {
		id, err := strconv.ParseUint(strings.TrimPrefix(text, "failure/"), 10, 64)
		if err != nil || id == 0 {
			return fmt.Errorf("%q is not the ID of a failure (`curlctl failures` lists them)", text)
		}
		s.IDs = append(s.IDs, id)
	}
	return nil
}

// Failure reads a failure by its ID. The error wraps pipeline.ErrNoMessage if there is none.
func Failure(ctx context.Context, client *broker.Client, id uint64) (broker.DeadLetter, error) {
	f, err := client.DeadLetter(ctx, id)
	if errors.Is(err, pipeline.ErrNoMessage) || errors.Is(err, pipeline.ErrSubject) {
		err = fmt.Errorf("failure %d not found, it may have been removed (`curlctl failures` lists all): %w", id,
			pipeline.ErrNoMessage)
	}
	return f, err
}

// Failures reads the selected failures: those with the IDs, or, without IDs, all that match the filter, newest first.
func (s *Selection) Failures(ctx context.Context, client *broker.Client) iter.Seq2[broker.DeadLetter, error] {
	if len(s.IDs) == 0 {
		return client.DeadLetters(ctx, s.DeadLetterFilter)
	}
	return func(yield func(broker.DeadLetter, error) bool) {
		for _, id := range s.IDs {
			if f, err := Failure(ctx, client, id); !yield(f, err) || err != nil {
				return
			}
		}
	}
}

// Parse checks the fields, and sets the times of the filter. An error begins with the name of the field, in lower case.
func (s *Selection) Parse(now time.Time) (err error) {
	s.Host = strings.ToLower(s.Host)
	if s.Reason != "" && failure.ClassOf(s.Reason) == failure.Unspecified {
		return fmt.Errorf("reason: %q is not one of %s", s.Reason, strings.Join(Reasons(), ", "))
	}
	if s.Since, err = moment("since", s.SinceText, now); err != nil {
		return err
	}
	s.Until, err = moment("until", s.UntilText, now)
	if err == nil && !s.Since.IsZero() && !s.Until.IsZero() && !s.Since.Before(s.Until) {
		err = fmt.Errorf("until: %q is not after the value %q of since", s.UntilText, s.SinceText)
	}
	return err
}

// moment parses an RFC 3339 time, or a duration before now.
func moment(field, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if ago, err := duration.Parse(text); err == nil && ago >= 0 {
		return now.Add(-ago), nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, fmt.Errorf(
			"%s: %q is neither a duration such as 2h or 3d nor a time such as 2026-01-31T12:00:00Z", field, text)
	}
	return at, nil
}

// Reasons returns the reasons of failures.
func Reasons() []string {
	var all []string
	for n := int32(1); v1.FailureClass_name[n] != ""; n++ {
		all = append(all, failure.Reason(v1.FailureClass(n)))
	}
	return all
}
