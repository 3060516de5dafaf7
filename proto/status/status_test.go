package status_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/status"
)

const digest = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func full() status.Entry {
	return status.Entry{
		URL: "https://e.example.com/?a=1&b=<2>", SHA256: digest, Size: 12,
		ChangedAt: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		Binary:    true,
		Error:     "BadStatus", ErrorURL: "https://e.example.com/new",
		Since: time.Date(2026, 1, 3, 0, 0, 0, 0, time.UTC), Attempts: 3, GaveUp: true,
		Explanation: &status.Explanation{
			HTTPStatus: 404, Message: "e.example.com responded with 404", NextTry: time.Date(2026, 1, 3, 1, 0, 0, 0, time.UTC),
			Stale: true, Terminal: true,
		},
		CheckedFingerprint: "kubectl-edit/Update/2026-01-02T03:04:05Z", UIDMark: "0b0e8a63",
		Fence: status.Fence{Epoch: 1767323045000, Seq: 7},
	}
}

func TestString(t *testing.T) {
	s := status.Status{Keys: map[string]status.Entry{"b": full(), "a": {}}}
	want := `{"a":{},"b":{"url":"https://e.example.com/?a=1&b=<2>","sha256":"` + digest + `","size":12,` +
		`"changedAt":"2026-01-02T03:04:05Z","binary":true,` +
		`"error":"BadStatus","errorUrl":"https://e.example.com/new",` +
		`"since":"2026-01-03T00:00:00Z","attempts":3,"gaveUp":true,` +
		`"httpStatus":404,"message":"e.example.com responded with 404","nextTry":"2026-01-03T01:00:00Z","stale":true,` +
		`"terminal":true,` +
		`"checkedOwner":"kubectl-edit/Update/2026-01-02T03:04:05Z","uidMark":"0b0e8a63","fence":"1767323045000.7"}}`
	if got := s.String(); got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
	parsed, err := status.Parse(s.String())
	if err != nil || !reflect.DeepEqual(parsed, s) {
		t.Errorf("got %+v, %v", parsed, err)
	}
}

func TestEmpty(t *testing.T) {
	for _, s := range []status.Status{{}, {Keys: map[string]status.Entry{}}} {
		if got := s.String(); got != "" {
			t.Errorf("got %q", got)
		}
	}
	for _, value := range []string{"", "{}", "null"} {
		parsed, err := status.Parse(value)
		if err != nil || parsed.Keys == nil || len(parsed.Keys) > 0 {
			t.Errorf("%q: got %+v, %v", value, parsed, err)
		}
	}
}

func TestStringNormalises(t *testing.T) {
	local := time.FixedZone("somewhere", 3600)
	s := status.Status{Keys: map[string]status.Entry{"a": {
		URL: "https://e.example.com", ErrorURL: "https://e.example.com", Error: "Timeout",
		ChangedAt: time.Date(2026, 1, 2, 3, 4, 5, 999, local), Since: time.Date(2026, 1, 2, 4, 4, 5, 999, local),
		Explanation: &status.Explanation{NextTry: time.Date(2026, 1, 2, 5, 4, 5, 999, local)},
	}}}
	want := `{"a":{"url":"https://e.example.com","changedAt":"2026-01-02T02:04:05Z","error":"Timeout",` +
		`"since":"2026-01-02T03:04:05Z",` +
		`"nextTry":"2026-01-02T04:04:05Z"}}`
	if got := s.String(); got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
	if s.Keys["a"].NextTry.Location() != local {
		t.Error("String changed the status")
	}
}

func TestParseIgnoresUnknownFieldsAndKeys(t *testing.T) {
	parsed, err := status.Parse(` {"$version":2, "a":{"url":"https://e.example.com","colour":"red"}, "b":null} `)
	if err != nil || len(parsed.Keys) != 2 || parsed.Keys["a"].URL != "https://e.example.com" {
		t.Errorf("got %+v, %v", parsed, err)
	}
}

func TestParseRefuses(t *testing.T) {
	for name, value := range map[string]string{
		"text":             "not json",
		"blank":            " ",
		"list":             `[]`,
		"cut short":        `{"a":{"url":"https`,
		"two values":       `{} {}`,
		"entry not object": `{"a":7}`,
		"wrong type":       `{"a":{"size":"12"}}`,
		"negative size":    `{"a":{"size":-1}}`,
		"attempts":         `{"a":{"attempts":-1}}`,
		"short digest":     `{"a":{"sha256":"abcd"}}`,
		"half a byte":      `{"a":{"sha256":"` + digest + `0"}}`,
		"upper digest":     `{"a":{"sha256":"` + strings.ToUpper(digest) + `"}}`,
		"time":             `{"a":{"since":"yesterday"}}`,
		"year 10000":       `{"a":{"since":"9999-12-31T23:59:59-01:00"}}`,
		"year 0":           `{"a":{"since":"0001-01-01T00:00:00+01:00"}}`,
		"fence":            `{"a":{"fence":"7"}}`,
		"too many entries": entries(status.MaxEntries + 1),
		"too long":         `{"a":{"url":"` + strings.Repeat("x", status.MaxBytes) + `"}}`,
	} {
		parsed, err := status.Parse(value)
		if !errors.Is(err, status.ErrMalformed) {
			t.Errorf("%s: got %+v, %v", name, parsed, err)
		}
		if parsed.Keys == nil || len(parsed.Keys) > 0 {
			t.Errorf("%s: the status is not empty and usable: %+v", name, parsed)
		}
	}
}

// entries returns a status with n entries.
func entries(n int) string {
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, `,"%d":{}`, i)
	}
	return "{" + strings.TrimPrefix(text.String(), ",") + "}"
}

func TestParseReadsTheMaximumNumberOfEntries(t *testing.T) {
	parsed, err := status.Parse(entries(2 * annotation.MaxPairs))
	if err != nil || len(parsed.Keys) != 2*annotation.MaxPairs {
		t.Errorf("got %d keys, %v", len(parsed.Keys), err)
	}
}

// A user may write a status, so the cost of parsing must not grow with the number of entries in the
// annotation.
func TestTooManyEntriesCostNoMemory(t *testing.T) {
	many := entries(25_000)
	allocated := testing.AllocsPerRun(10, func() { _, _ = status.Parse(many) })
	allowed := testing.AllocsPerRun(10, func() { _, _ = status.Parse(entries(status.MaxEntries)) })
	if allocated > allowed {
		t.Errorf("%.0f allocations, but the largest valid status needs %.0f", allocated, allowed)
	}
}

// Reasons of entries become reasons of Events and metric labels, and the audit selects keys by reason.
func TestParseAcceptsOnlyKnownReasons(t *testing.T) {
	parsed, err := status.Parse(`{"a":{"error":"Forged1"},"b":{"error":"Forged2"},"c":{"error":"Timeout"},"d":{},` +
		`"*":{"error":"Forged3"}}`)
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{"a": "Unknown", "b": "Unknown", "c": "Timeout", "d": ""} {
		if got := parsed.Keys[key].Error; got != want {
			t.Errorf("%s: got %q, want %q", key, got, want)
		}
	}
	if parsed.Problem.Error != "Unknown" {
		t.Errorf("got %q for the object", parsed.Problem.Error)
	}
}

func TestErrorsQuoteNothing(t *testing.T) {
	_, err := status.Parse(`{"a":{"size":"https://e.example.com/?secret"}}`)
	if err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("got %v", err)
	}
}

// The status is copied with the object. Only facts that the key's value confirms still hold.
func TestCopied(t *testing.T) {
	e := full()
	if uid := types.UID("0b0e8a63-8c4f-4c5e-9d0a-000000000001"); status.UIDMark(uid) != e.UIDMark || e.Copied(uid) {
		t.Errorf("an entry counts as a copy on its own object, mark %q", status.UIDMark(uid))
	}
	for _, uid := range []types.UID{"1b0e8a63-8c4f-4c5e-9d0a-000000000001", "0b0e8a6", ""} {
		if !e.Copied(uid) {
			t.Errorf("not a copy on %q", uid)
		}
	}
	if (status.Entry{SHA256: digest}).Copied("1b0e8a63-8c4f") {
		t.Error("an entry without an object counts as a copy")
	}
	want := status.Entry{
		SHA256: digest, Size: 12, ChangedAt: e.ChangedAt, Binary: true,
	}
	if got := e.OnlyBody(); got != want {
		t.Errorf("body %+v", got)
	}
}

// FuzzStatus checks that Parse never panics, and that formatting and parsing a status again changes
// nothing.
func FuzzStatus(f *testing.F) {
	s := status.Status{Keys: map[string]status.Entry{"b": full(), "a": {}}}
	for _, seed := range []string{
		"", "{}", "null", "not json", s.String(),
		`{"a":{"url":"é","since":"9999-12-31T23:59:59-01:00"}}`,
		`{"a":{"URL":"x","errorUrl":"x"},"a":{"url":"\ud800"},"$x":1}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		parsed, err := status.Parse(value)
		if err != nil {
			if !errors.Is(err, status.ErrMalformed) || len(parsed.Keys) > 0 {
				t.Fatalf("got %+v, %v", parsed, err)
			}
			return
		}
		text := parsed.String()
		if (text == "") != (len(parsed.Keys) == 0) {
			t.Fatalf("%d keys became %q", len(parsed.Keys), text)
		}
		if len(text) > status.MaxBytes {
			t.Skip() // replacing invalid UTF-8 made it longer
		}
		again, err := status.Parse(text)
		if err != nil || !reflect.DeepEqual(again, parsed) || again.String() != text {
			t.Errorf("%q became %+v, %v", text, again, err)
		}
	})
}

// Problems with the annotations do not appear among the keys.
func TestProblem(t *testing.T) {
	s := status.Status{
		Keys: map[string]status.Entry{"a": {}},
		Problem: &status.ObjectProblem{
			Error: "InvalidAnnotation", Message: "annotation value 'x' does not match expected format key=url",
			Since: time.Date(2026, 1, 3, 0, 0, 0, 0, time.UTC),
		},
	}
	want := `{"*":{"error":"InvalidAnnotation","message":"annotation value 'x' does not match expected format key=url",` +
		`"since":"2026-01-03T00:00:00Z"},"a":{}}`
	if got := s.String(); got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
	parsed, err := status.Parse(want)
	if err != nil || !reflect.DeepEqual(parsed, s) {
		t.Errorf("got %+v, %v", parsed, err)
	}
	if clone := parsed.Clone(); !reflect.DeepEqual(clone, s) {
		t.Errorf("cloned %+v", clone)
	}
	odd, err := status.Parse(`{"*":{"error":"x","since":"2026-01-03T01:00:00.5+01:00"}}`)
	if err != nil || odd.String() != `{"*":{"error":"Unknown","since":"2026-01-03T00:00:00Z"}}` {
		t.Errorf("got %s, %v", odd, err)
	}
	for _, odd := range []string{
		`{"*":7}`, `{"*":{}}`, `{"*":{"error":"x","since":"never"}}`,
		`{"*":{"error":"x","since":"9999-12-31T23:59:59-23:00"}}`,
	} {
		if parsed, err := status.Parse(odd); err != nil || parsed.Problem != nil || parsed.String() != "" {
			t.Errorf("%s: got %+v, %v", odd, parsed, err)
		}
	}
}

func TestSplit(t *testing.T) {
	ours := map[string]string{"b.example/curl": "k=h"}
	both := map[string]string{"b.example/curl": "k=h", annotation.LegacyKey: "k=h"}
	g, err := annotation.New(annotation.Options{Keys: []string{"b.example/curl"}, DefaultScheme: "https"})
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		by          string
		annotations map[string]string
		own, copied bool
	}{
		"asked for by us":                       {"b.example/curl", nil, true, false},
		"asked for by another annotation":       {"a.example/curl", map[string]string{"a.example/curl": ""}, false, false},
		"of another annotation that is gone":    {"a.example/curl", nil, false, false},
		"of another that is gone, now ours":     {"a.example/curl", ours, true, true},
		"asked for by both":                     {"", both, false, false},
		"of the default that is gone, now ours": {"", ours, true, true},
		"of what is not a name":                 {"no name", nil, false, false},
		"of the default by its name":            {annotation.DefaultKey, nil, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			request, err := g.Parse(tt.annotations)
			if err != nil {
				t.Fatal(err)
			}
			all := status.Status{
				Keys:    map[string]status.Entry{"k": {SHA256: digest, UIDMark: "uid", Annotation: tt.by}},
				Problem: &status.ObjectProblem{Error: "InvalidAnnotation", Annotation: "a.example/curl"},
			}
			s, err := status.Parse(all.String())
			if err != nil {
				t.Fatal(err)
			}
			ours, others := s.Split(g, request, tt.annotations)
			entry, own := ours.Keys["k"]
			_, theirs := others.Keys["k"]
			_, present := tt.annotations["a.example/curl"]
			if own != tt.own || theirs == own || own && entry.Copied("uid") != tt.copied || (others.Problem != nil) != present {
				t.Errorf("own: %+v, others: %+v", ours, others)
			}
			if with := ours.With(others); len(with.Keys) != 1 || with.Problem == nil {
				t.Errorf("together: %+v", with)
			}
		})
	}
}
