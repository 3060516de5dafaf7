package plan_test

import (
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/status"
	"github.com/kv8s/curl-me-that/watcher/internal/annotated"
	"github.com/kv8s/curl-me-that/watcher/internal/plan"
)

func TestANoticeKeepsItsOccurrenceWhileItLasts(t *testing.T) {
	t.Parallel()
	occurrence := func(c call) string {
		t.Helper()
		p := plan.Make(c.object, c.wants, epoch)
		NewWithT(t).Expect(p.Notices).To(HaveLen(1))
		return p.Notices[0].Occurrence
	}
	invalid := func(text string, changed int64) call {
		return about(none, nil, nil,
			func(c *call) { c.object.Invalid, c.object.MainAnnotatedAt = errors.New(text), time.Unix(changed, 0) })
	}
	next := func(e *status.Entry) { e.Fence.Seq = 9 }
	problem := func(key, rule, text string) call {
		return about(none, nil, nil, asking(annotation.Request{
			Present: true, Problems: []annotation.Problem{{Key: key, Mistake: rule, Text: text}},
		}))
	}
	for name, c := range map[string]struct {
		a, b call
		same bool
	}{
		"pair invalid, others changed":  {problem("k", "ftp", "pair 1"), problem("k", "ftp", "pair 2"), true},
		"pair invalid, another rule":    {problem("k", "ftp", "pair 1"), problem("k", "user", "pair 1"), false},
		"pair invalid, another key":     {problem("k", "ftp", "pair 1"), problem("l", "ftp", "pair 1"), false},
		"not about a pair, other words": {problem("", "rule", "one"), problem("", "rule", "two"), false},
		"invalid, edited elsewhere":     {invalid("bad", 1), invalid("bad", 2), true},
		"invalid in another way":        {invalid("bad", 1), invalid("worse", 1), false},
		"foreign, written again":        {about(foreign, nil, nil), about(later, nil, nil), true},
		"drifted, written again":        {about(foreign, written(), nil), about(later, written(), nil), true},
		"drifted again after a repair":  {about(none, written(), nil), about(none, written(next), nil), false},
	} {
		same := occurrence(c.a) == occurrence(c.b)
		NewWithT(t).Expect(same).To(Equal(c.same), name)
	}
}

// The writer puts a foreign key into the status.
func TestOccupiedKeysAreReportedUntilTheStatusHasThem(t *testing.T) {
	t.Parallel()
	entry := func(reason, url, object string) *status.Entry {
		return &status.Entry{Error: reason, ErrorURL: url, UIDMark: object}
	}
	for name, c := range map[string]struct {
		call
		want bool
	}{
		"not in the status":         {about(foreign, nil, nil), true},
		"in the status":             {about(foreign, entry("KeyExists", url, "uid"), nil), false},
		"without a uid":             {about(foreign, entry("KeyExists", url, ""), nil), false},
		"for another URL":           {about(foreign, entry("KeyExists", url+"/other", "uid"), nil), true},
		"in the status of another":  {about(foreign, entry("KeyExists", url, "another"), nil), true},
		"for another reason":        {about(foreign, entry("Timeout", url, "uid"), nil), true},
		"in the status, free again": {about(none, entry("KeyExists", url, "uid"), nil), false},
		"while suspended":           {about(foreign, nil, nil, func(c *call) { c.object.Request.Suspended = true }), false},
	} {
		NewWithT(t).Expect(plan.Make(c.object, c.wants, epoch).AskWriter).To(Equal(c.want), name)
	}
}

// A fixed mistake is reported once more.
func TestProblemsAreReportedUntilTheStatusHasThem(t *testing.T) {
	t.Parallel()
	invalid := func(c *call) { c.object.Invalid = errors.New("bad") }
	refused := asking(annotation.Request{
		Present:  true,
		Problems: []annotation.Problem{{Key: "k", Text: "bad", Rejected: true}}, Rejected: []string{"k"},
	})
	has := func(message string) func(*call) {
		return func(c *call) {
			problem := &status.ObjectProblem{Error: "InvalidAnnotation", Message: message}
			c.object.Status = annotated.EntriesOf(status.Status{Problem: problem}, nil)
		}
	}
	for name, tt := range map[string]struct {
		call
		problem string
		report  bool
	}{
		"invalid":                  {about(none, nil, nil, invalid), "bad", true},
		"invalid, in the status":   {about(none, nil, nil, invalid, has("bad")), "bad", false},
		"a pair":                   {about(none, nil, nil, refused), "bad", true},
		"a pair, in the status":    {about(none, nil, nil, refused, has("bad")), "bad", false},
		"another is in the status": {about(none, nil, nil, refused, has("worse")), "bad", true},
		"fixed":                    {about(none, nil, nil, has("bad")), "", true},
		"nothing":                  {about(none, nil, nil), "", false},
	} {
		p := plan.Make(tt.object, tt.wants, epoch)
		NewWithT(t).Expect(p.Problem).To(Equal(tt.problem), name)
		NewWithT(t).Expect(p.AskWriter).To(Equal(tt.report), name)
	}
}

func TestNotesOfNotices(t *testing.T) {
	t.Parallel()
	manager := annotation.Ownership{State: annotation.Foreign, Fingerprint: "kubectl-edit/Update/2026-01-02T12:00:00Z"}
	hashed := annotation.Ownership{State: annotation.Foreign, Fingerprint: "0123456789abcdef"}
	odd := annotation.Request{Present: true, Problems: []annotation.Problem{{Text: "odd"}}}
	for _, c := range []struct {
		want string
		call
	}{
		{"bad", about(none, nil, nil, func(c *call) { c.object.Invalid = errors.New("bad") })},
		{"odd", about(none, nil, nil, asking(odd))},
		{"key k was removed; it is fetched again", about(none, written(), nil)},
		{"key k was changed by field manager kubectl-edit; it is fetched again", about(manager, written(), nil)},
		{"key k was changed by somebody else; it is fetched again", about(hashed, written(), nil)},
		{
			"key k already exists and is not managed by curl-me-that; " +
				"remove it from the ConfigMap, or choose another key " +
				"[https://github.com/kv8s/curl-me-that/blob/main/deploy/docs/why-empty.md#3]",
			about(foreign, nil, nil),
		},
	} {
		NewWithT(t).Expect(plan.Make(c.object, c.wants, epoch).Notices).To(HaveExactElements(
			And(HaveField("Note", c.want), HaveField("Occurrence", Not(BeEmpty())))))
	}
	NewWithT(t).Expect(plan.Make(about(foreign, nil, nil).object, nil, epoch).Foreign).To(Equal([]string{"k", url}))
}
