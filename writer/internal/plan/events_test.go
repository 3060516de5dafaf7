package plan_test

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/condition"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/writer/internal/plan"
)

// eventsFile has every Event of the writer.
const eventsFile = "testdata/events.golden"

// nextLook sets the next try: soon, or in an hour after giving up.
func nextLook(f *v1.Failure) {
	if f.GetGaveUp() {
		f.Interval, f.NextAt = durationpb.New(time.Hour), timestamppb.New(noon.Add(time.Hour))
		return
	}
	f.NextAt = timestamppb.New(noon.Add(4 * time.Second))
}

// ofFetches returns the Events of all failures of fetches, for each class and detail.
func ofFetches(t *testing.T) []plan.Event {
	t.Helper()
	details := map[v1.FailureClass][]v1.FailureDetail{}
	for n := range int32(len(v1.FailureDetail_name)) {
		class, detail := v1.FailureClass_FAILURE_CLASS_ADDRESS_DENIED, v1.FailureDetail(n)
		switch name := detail.String(); {
		case n == 0:
			continue
		case strings.Contains(name, "CERTIFICATE"), strings.Contains(name, "HANDSHAKE"), strings.Contains(name, "PLAIN_HTTP"):
			class = v1.FailureClass_FAILURE_CLASS_TLS_FAILED
		case strings.Contains(name, "REDIRECT"):
			class = v1.FailureClass_FAILURE_CLASS_TOO_MANY_REDIRECTS
		case strings.Contains(name, "ENCODING"), strings.Contains(name, "CUT_OFF"), strings.Contains(name, "NOT_HTTP"):
			class = v1.FailureClass_FAILURE_CLASS_BAD_RESPONSE
		case strings.Contains(name, "CONNECT_TIMEOUT"):
			class = v1.FailureClass_FAILURE_CLASS_TIMEOUT
		case strings.Contains(name, "DNS"):
			class = v1.FailureClass_FAILURE_CLASS_DNS_FAILED
		case strings.Contains(name, "PROXY"), strings.Contains(name, "REFUSED"),
			strings.Contains(name, "ROUTE"), strings.Contains(name, "CLOSED"):
			class = v1.FailureClass_FAILURE_CLASS_CONNECT_FAILED
		case strings.Contains(name, "JSON"), strings.Contains(name, "INAPPLICABLE"), strings.Contains(name, "COSTLY"):
			class = v1.FailureClass_FAILURE_CLASS_CONTENT_REJECTED
		case strings.Contains(name, "MESSAGE_LIMIT"):
			class = v1.FailureClass_FAILURE_CLASS_BODY_TOO_LARGE
		}
		details[class] = append(details[class], detail)
	}
	var events []plan.Event
	add := func(object fixture, f *v1.Failure) {
		f.Attempts, f.FirstFailedAt = 6, timestamppb.New(noon)
		nextLook(f)
		item := result(6, func(r *v1.Result) { r.Outcome = &v1.Result_Failure{Failure: f} })
		events = append(events, plan.Planner{}.Plan(object.object(t), []plan.Item{item}).Decisions[0].Events...)
	}
	notMet := []v1.FailureClass{
		v1.FailureClass_FAILURE_CLASS_INVALID_ANNOTATION, v1.FailureClass_FAILURE_CLASS_KEY_EXISTS,
		v1.FailureClass_FAILURE_CLASS_WRITE_FAILED, v1.FailureClass_FAILURE_CLASS_IMMUTABLE,
	}
	for n := range int32(len(v1.FailureClass_name)) {
		class := v1.FailureClass(n)
		if slices.Contains(notMet, class) {
			continue
		}
		status := int32(0)
		if class == badStatus {
			status = 404
		}
		add(asking(), &v1.Failure{Class: class, StatusCode: status})
		add(asking().noted(wrote("a")), &v1.Failure{Class: class, StatusCode: status, GaveUp: true})
		for _, detail := range details[class] {
			add(asking(), &v1.Failure{Class: class, Detail: detail})
		}
	}
	add(asking(), &v1.Failure{Class: v1.FailureClass_FAILURE_CLASS_BODY_TOO_LARGE, LimitBytes: 1 << 20})
	add(asking(), &v1.Failure{
		Class: v1.FailureClass_FAILURE_CLASS_ADDRESS_DENIED, Detail: v1.FailureDetail_FAILURE_DETAIL_DENIED_HOST,
		Redirects: 2,
	})
	add(asking(), &v1.Failure{Class: timeout, TimeLimit: durationpb.New(5 * time.Second)})
	add(asking(), &v1.Failure{
		Class: v1.FailureClass_FAILURE_CLASS_DIGEST_MISMATCH, Sha256: strings.Repeat("0123456789abcdef", 4),
	})
	add(asking(), &v1.Failure{Class: badStatus, StatusCode: 429, WaitsFor: v1.WaitsFor_WAITS_FOR_PAUSE})
	return events
}

// ofWrites returns the Events of the writer's own failures.
func ofWrites(t *testing.T) []plan.Event {
	t.Helper()
	of := func(object fixture, item plan.Item) plan.Event { return eventOf(t, object, item) }
	body := content(6, "b")
	object := asking().object(t)
	noLonger := asking().annotated(annotation.DefaultKey, "other=https://data.example.com").noted(wrote("a"))
	noLonger.owners = map[string]bool{annotation.FieldManager: true, "kustomize-controller": true}
	return []plan.Event{
		of(asking().noted(failing(wrote("a"), "Timeout")), body),
		of(asking().ownedBy("person"), body),
		of(asking().behind(plan.Immutable), body),
		of(asking().behind(plan.TooLarge), body),
		of(asking().noted(wrote("a")).behind(plan.Rejected), body),
		of(noLonger, reconcile()),
		plan.Refusal(object, reconcile(), plan.Rejected), plan.Denial(reconcile()),
		plan.Refusal(object, body, plan.Rejected), plan.Refusal(object, body, plan.NoRoom),
		plan.Denial(body), plan.OverBudget(object, body), plan.Recovered(body),
	}
}

// A user who guesses the next fence must not choose the reason of an Event, because it is a metric
// label.
func TestAForgedReasonIsNoneOfAnEvent(t *testing.T) {
	for _, forged := range []string{"Forged", "InvalidAnnotation"} {
		object := asking().annotated(annotation.StatusKey,
			`{"`+theKey+`":{"error":"`+forged+`","fence":"`+fence(6).String()+`"}}`).object(t)
		for _, e := range (plan.Planner{}).Plan(object, []plan.Item{failure(6, timeout)}).Decisions[0].Events {
			if !slices.Contains(plan.Reasons(), e.Reason) {
				t.Errorf("%s: an Event has the reason %s", forged, e.Reason)
			}
		}
	}
}

// TestEveryEventWordForWord compares all Events of the writer with a file. UPDATE_GOLDEN=1 writes
// it.
func TestEveryEventWordForWord(t *testing.T) {
	reasons := map[string]bool{}
	lines := map[string]bool{}
	for _, e := range append(ofFetches(t), ofWrites(t)...) {
		reasons[e.Reason] = true
		kind := "Normal"
		if e.Warning {
			kind = "Warning"
		}
		lines[fmt.Sprintf("%-8s %-16s %s\n", kind, e.Reason, e.Note)] = true
		if strings.ContainsAny(e.Note, "?\n") || strings.Contains(e.Note, "token=") || len(e.Note) > 1024 {
			t.Errorf("%s: %q has what does not belong there", e.Reason, e.Note)
		}
		if cause := condition.WhyEmpty(pipeline.ClassOf(e.Reason)); !strings.HasSuffix(e.Note, "["+cause+"]") &&
			cause != "" && e.Action != "Remove" {
			t.Errorf("%s: %q does not lead to %s", e.Reason, e.Note, cause)
		}
	}
	for _, reason := range plan.Reasons() {
		if !reasons[reason] {
			t.Errorf("no Event has the reason %s", reason)
		}
	}
	got := strings.Join(slices.SortedFunc(maps.Keys(lines), func(a, b string) int { return cmp.Compare(a[9:], b[9:]) }),
		"")
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(eventsFile, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(eventsFile)
	if err != nil || got != string(want) {
		t.Errorf("%v; UPDATE_GOLDEN=1 go test writes %s:\n%s", err, eventsFile, got)
	}
}
