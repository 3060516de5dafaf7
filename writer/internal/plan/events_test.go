package plan_test

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/kv8s/curl-me-that/proto/annotation"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/failure"
	"github.com/kv8s/curl-me-that/proto/sentence"
	"github.com/kv8s/curl-me-that/writer/internal/plan"
)

// eventsFile lists every Event of the writer.
const eventsFile = "testdata/events.golden"

// setNextTry sets the next try: in seconds, or in an hour after giving up.
func setNextTry(f *v1.Failure) {
	if f.GetGaveUp() {
		f.Interval, f.NextAt = durationpb.New(time.Hour), timestamppb.New(noon.Add(time.Hour))
		return
	}
	f.NextAt = timestamppb.New(noon.Add(4 * time.Second))
}

// classOf returns the class of a detail, by a word in its name.
func classOf(detail v1.FailureDetail) v1.FailureClass {
	for _, of := range []struct {
		class v1.FailureClass
		words string
	}{
		{v1.FailureClass_FAILURE_CLASS_CONTENT_REJECTED, "JSON|INAPPLICABLE|COSTLY|NOT_CERT|BAD_CERT"},
		{v1.FailureClass_FAILURE_CLASS_TLS_FAILED, "CERTIFICATE|HANDSHAKE|PLAIN_HTTP"},
		{v1.FailureClass_FAILURE_CLASS_TOO_MANY_REDIRECTS, "REDIRECT"},
		{v1.FailureClass_FAILURE_CLASS_BAD_RESPONSE, "ENCODING|CUT_OFF|NOT_HTTP"},
		{v1.FailureClass_FAILURE_CLASS_TIMEOUT, "CONNECT_TIMEOUT"},
		{v1.FailureClass_FAILURE_CLASS_DNS_FAILED, "DNS"},
		{v1.FailureClass_FAILURE_CLASS_CONNECT_FAILED, "PROXY|REFUSED|ROUTE|CLOSED"},
		{v1.FailureClass_FAILURE_CLASS_BODY_TOO_LARGE, "MESSAGE_LIMIT"},
	} {
		if regexp.MustCompile(of.words).MatchString(detail.String()) {
			return of.class
		}
	}
	return v1.FailureClass_FAILURE_CLASS_ADDRESS_DENIED
}

// ofFetches returns the Events of failed fetches, for each class and detail.
func ofFetches() []plan.Event {
	details := map[v1.FailureClass][]v1.FailureDetail{}
	for n := range int32(len(v1.FailureDetail_name)) {
		if detail := v1.FailureDetail(n); n > 0 {
			details[classOf(detail)] = append(details[classOf(detail)], detail)
		}
	}
	var events []plan.Event
	add := func(object fixture, f *v1.Failure) {
		f.Attempts, f.FirstFailedAt = 6, timestamppb.New(noon)
		setNextTry(f)
		item := result(6, func(r *v1.Result) { r.Outcome = &v1.Result_Failure{Failure: f} })
		p, _ := object.object().plan(plan.Planner{}, item)
		events = append(events, p.Decisions[0].Events...)
	}
	neverFetched := []v1.FailureClass{
		v1.FailureClass_FAILURE_CLASS_INVALID_ANNOTATION, v1.FailureClass_FAILURE_CLASS_KEY_EXISTS,
		v1.FailureClass_FAILURE_CLASS_WRITE_FAILED, v1.FailureClass_FAILURE_CLASS_IMMUTABLE,
	}
	for n := range int32(len(v1.FailureClass_name)) {
		class := v1.FailureClass(n)
		if slices.Contains(neverFetched, class) {
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
	object := asking().object()
	noLonger := asking().annotated(annotation.DefaultKey, "other=https://data.example.com").noted(wrote("a"))
	noLonger.owners = map[string]bool{annotation.FieldManager: true, "kustomize-controller": true}
	pinnedKey := asking().noted(wrote("a")).ownedBy(annotation.FieldManager).
		annotated("x-kv8s.io/curl-refresh", "1h").annotated("x-kv8s.io/curl-sha256", theKey+"="+digest("c"))
	pinnedKey.history = map[string][]byte{digest("c"): nil}
	found := pinnedKey
	found.history = map[string][]byte{digest("c"): []byte("c")}
	return []plan.Event{
		of(pinnedKey, body), of(found, reconcile()),
		of(asking().noted(failing(wrote("a"), "Timeout")), body),
		of(asking().ownedBy("person"), body),
		of(asking().behind(plan.Immutable), body),
		of(asking().behind(plan.TooLarge), body),
		of(asking().noted(wrote("a")).behind(plan.Rejected), body),
		of(noLonger, reconcile()),
		plan.Refusal(object.Object, reconcile(), plan.Rejected),
		plan.Denial(reconcile(), false), plan.Denial(reconcile(), true),
		plan.Refusal(object.Object, body, plan.Rejected), plan.Refusal(object.Object, body, plan.StatusTooLarge),
		plan.Denial(body, false), plan.OverBudget(object.Object, body), plan.Recovered(body),
	}
}

// A user who guesses the next fence must not choose the reason of an Event, because it becomes a metric
// label.
func TestAForgedReasonDoesNotReachAnEvent(t *testing.T) {
	for _, forged := range []string{"Forged", "InvalidAnnotation"} {
		object := asking().annotated(annotation.StatusKey,
			`{"`+theKey+`":{"error":"`+forged+`","fence":"`+fence(6).String()+`"}}`).object()
		p, _ := object.plan(plan.Planner{}, failed(6, timeout))
		for _, e := range p.Decisions[0].Events {
			NewWithT(t).Expect(plan.Reasons()).To(ContainElement(e.Reason), forged)
		}
	}
}

// TestEveryEventWordForWord compares all Events of the writer with a file. UPDATE_GOLDEN=1 writes
// it.
func TestEveryEventWordForWord(t *testing.T) {
	g := NewWithT(t)
	reasons, lines := map[string]bool{}, map[string]bool{}
	for _, e := range append(ofFetches(), ofWrites(t)...) {
		reasons[e.Reason] = true
		kind := "Normal"
		if e.Warning {
			kind = "Warning"
		}
		lines[fmt.Sprintf("%-8s %-16s %s\n", kind, e.Reason, e.Note)] = true
		g.Expect(e.Note).NotTo(MatchRegexp(`[?\n]|token=`))
		g.Expect(len(e.Note)).To(BeNumerically("<=", 1024), e.Note)
		if cause := sentence.WhyEmpty(failure.ClassOf(e.Reason)); cause != "" && e.Action != "Remove" {
			g.Expect(e.Note).To(HaveSuffix("["+cause+"]"), e.Reason)
		}
	}
	for _, reason := range plan.Reasons() {
		g.Expect(reasons).To(HaveKey(reason))
	}
	got := strings.Join(slices.SortedFunc(maps.Keys(lines), func(a, b string) int { return cmp.Compare(a[9:], b[9:]) }),
		"")
	if os.Getenv("UPDATE_GOLDEN") != "" {
		g.Expect(os.WriteFile(eventsFile, []byte(got), 0o644)).To(Succeed())
	}
	want, err := os.ReadFile(eventsFile)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(got).To(Equal(string(want)), "UPDATE_GOLDEN=1 go test writes "+eventsFile)
}
