package curlctl_test

import (
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
)

// goldenPage compares a page with a file. UPDATE_GOLDEN=1 writes it.
func goldenPage(name, markup string) {
	GinkgoHelper()
	for _, v := range volatile {
		markup = v.pattern.ReplaceAllString(markup, v.text)
	}
	golden("console/"+name+".html", markup)
}

var _ = It("A page of the console matches its golden file", func(ctx SpecContext) {
	GinkgoT().Setenv("KUBECONFIG", "")
	GinkgoT().Setenv("HOME", GinkgoT().TempDir())
	w := newWorld(ctx)
	later := 20*time.Minute + 30*time.Second
	for i, host := range []string{"a.example.com", "b.example.com", "a.example.com"} {
		class := v1.FailureClass_FAILURE_CLASS_BAD_STATUS
		if i == 1 {
			class = v1.FailureClass_FAILURE_CLASS_TIMEOUT
		}
		due := &v1.Due{Cause: v1.Cause_CAUSE_RECHECK, Reported: class, Attempts: 6}
		want := w.timed(ctx, cm(i), "https://"+host+"/page?token=secret", due, later+time.Duration(i*10+15)*time.Minute,
			func(want *v1.Want) { want.Name = strings.Repeat("long-", i*12) + want.GetName() })
		w.fail(ctx, want, class)
	}
	b := w.openAt(func() time.Time { return time.Now().Add(later) }).enter()
	b.eventually("/").Should(ContainSubstring(`<p class="big">3</p><p class="of">waiting for a fetcher</p>`))
	goldenPage("overview", b.page("/"))
	Expect(b.page("/failures?host=b.example.com")).NotTo(ContainSubstring("cm-000"))
	for name, path := range map[string]string{
		"failures": "/failures", "failure": "/failures/1", "wants": "/wants",
		"object": "/objects/default/cm-000", "replay": "/failures/replay?host=a.example.com",
		"problem": "/failures?since=yesterday",
	} {
		_, page := b.at(path)
		goldenPage(name, mainOf(page))
	}
})
