package deadletter

import (
	"fmt"
	"strings"
	"time"

	"github.com/kv8s/curl-me-that/deploy/curlctl/operate"
	"github.com/kv8s/curl-me-that/proto/annotation/duration"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// Selection selects failures, in the syntax of flags. Empty fields select all.
type Selection struct {
	Reason, Host, Namespace, Name, Key string
	// Since and Until are a duration before now, such as 2h, or an RFC 3339 time.
	Since, Until string
}

// Filter parses the selection. An error begins with the name of the field, in lower case.
func (s Selection) Filter(now time.Time) (operate.DeadLetterFilter, error) {
	filter := operate.DeadLetterFilter{
		Reason: s.Reason, Host: strings.ToLower(s.Host), Namespace: s.Namespace, Name: s.Name, Key: s.Key,
	}
	if s.Reason != "" && pipeline.ClassOf(s.Reason) == v1.FailureClass_FAILURE_CLASS_UNSPECIFIED {
		return filter, fmt.Errorf("reason: %q is not one of %s", s.Reason, strings.Join(Reasons(), ", "))
	}
	var err error
	if filter.Since, err = moment("since", s.Since, now); err != nil {
		return filter, err
	}
	filter.Until, err = moment("until", s.Until, now)
	if err == nil && !filter.Since.IsZero() && !filter.Until.IsZero() && !filter.Since.Before(filter.Until) {
		err = fmt.Errorf("until: %q is not after the value %q of since", s.Until, s.Since)
	}
	return filter, err
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
		all = append(all, pipeline.Reason(v1.FailureClass(n)))
	}
	return all
}
