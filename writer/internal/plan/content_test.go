package plan_test

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/status"
	"github.com/kv8s/curl-me-that/writer/internal/plan"
)

const page = "<!DOCTYPE html><title>Sign in</title>"

func TestIsHTML(t *testing.T) {
	utf16 := func(text string) string {
		wide := "\xff\xfe"
		for _, c := range []byte(text) {
			wide += string([]byte{c, 0})
		}
		return wide
	}
	for body, want := range map[string]bool{
		page: true, "\ufeff\r\n <HTML lang=en>": true, "<!-- by proxy -->\n<head>": true, utf16(page): true,
		`<?xml version="1.0"?><!DOCTYPE html PUBLIC "x">`: true, "<body/>": true, "<form action=/login>": true,
		"": false, "{}": false, "<project>": false, "<!-- by hand --><project>": false, "text <html>": false,
		"<htmlx>": false, `<?xml version="1.0"?><feed>`: false, "<svg xmlns=x>": false, "<?php": false,
	} {
		NewWithT(t).Expect(plan.IsHTML([]byte(body))).To(Equal(want), "%q", body)
	}
}

// The values of the object are read before a page replaces one.
func TestAPageReplacesOnlyAPage(t *testing.T) {
	const json = `{"a":1}`
	holding := func(was string) known {
		o := asking().wrote(was).ownedBy(annotation.FieldManager).holding(was).object()
		o.Pages = map[string]bool{theKey: plan.IsHTML([]byte(was))}
		return o
	}
	allowed := holding(json)
	allowed.Request.AllowHTML = true
	edited := asking().wrote(page).ownedBy("kubectl").holding(json).object()
	unread := holding(json)
	unread.Values, unread.Pages = nil, nil
	pinned := content(9, page)
	pinned.Result.Want.Sha256 = digest(page)
	for name, tt := range map[string]struct {
		object known
		item   plan.Item
		want   plan.Outcome
	}{
		"a page over JSON":           {holding(json), content(9, page), plan.Refused},
		"a page over a page":         {holding("<html>"), content(9, page), plan.Written},
		"JSON over a page":           {holding(page), content(9, json), plan.Written},
		"a page that is allowed":     {allowed, content(9, page), plan.Written},
		"a page with its digest":     {holding(json), pinned, plan.Written},
		"the page over an edit":      {edited, content(9, page), plan.Written},
		"another page over an edit":  {edited, content(9, "<html>"), plan.Refused},
		"a page in an empty object":  {asking().object(), content(9, page), plan.Written},
		"a page for unread values":   {unread, content(9, page), ""},
		"a page over a pending body": {holding("<html>"), content(10, page), plan.Refused},
	} {
		items := []plan.Item{tt.item}
		if strings.HasSuffix(name, "pending body") {
			items = append(items, content(9, json))
		}
		p, need := tt.object.plan(plan.Planner{Prune: true}, items...)
		if tt.want == "" {
			NewWithT(t).Expect(need.Values).To(BeTrue(), name)
			continue
		}
		d := p.Decisions[0]
		NewWithT(t).Expect([]any{d.Outcome, d.NewPage}).To(Equal([]any{tt.want, tt.want == plan.Refused}), name)
		if tt.want == plan.Refused {
			NewWithT(t).Expect(d.Events).To(HaveExactElements(HaveField("Note", "data.example.com responded with an HTML page, "+
				"perhaps a login or an error page, and key mydata holds something else, which it keeps; "+
				"set curl-allow-html to true if the page is meant "+
				"[https://github.com/kv8s/curl-me-that/blob/main/deploy/docs/why-empty.md#9]")), name)
		}
	}
}

// The dead letter of the page could not be stored.
func TestAPageIsStillNewWhenItsMessageIsRetried(t *testing.T) {
	g := NewWithT(t)
	o := asking().wrote("{}").ownedBy(annotation.FieldManager).holding("{}").object()
	o.Pages = map[string]bool{theKey: false}
	for fence, isNew := range map[uint64]bool{9: true, 10: false} {
		first, _ := o.plan(plan.Planner{}, content(9, page))
		later := o
		later.Object = new(*o.Object)
		later.Status = suitetest.Sure(status.Parse(first.Status))
		again, _ := later.plan(plan.Planner{}, content(fence, page))
		d := again.Decisions[0]
		g.Expect([]any{d.Outcome, d.NewPage}).To(Equal([]any{plan.Refused, isNew}), "%d", fence)
	}
}
