package watchers_test

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/origin"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
)

const (
	// shortAckWait replaces the default AckWait of 30 s, after which the messages of a killed service are
	// redelivered.
	shortAckWait = 3 * time.Second
	// login is the sign-in page of a proxy, with status 200.
	login = "<html>Sign in</html>"
	// certificate is the start of a bundle.
	certificate = "-----BEGIN CERTIFICATE-----"
)

// answers are bodies by key, and the numbers of the rules that they break (0 for a selection), as in
// deploy/docs/rules.md.
type answers struct {
	bodies map[string]string
	rules  map[string]uint32
}

var (
	loginPages = answers{
		map[string]string{"rules.json": login, "ca.pem": login, "limits.json": login},
		map[string]uint32{"rules.json": 1, "ca.pem": 1, "limits.json": 0},
	}
	halfFiles = answers{
		map[string]string{"rules.json": `{"rules":[1],"version":2}`, "ca.pem": certificate, "limits.json": `{"data":{}}`},
		map[string]uint32{"rules.json": 2, "ca.pem": 2, "limits.json": 0},
	}
)

// goodBodies returns bodies that meet the rules, and the resulting data.
func goodBodies(n int) (bodies, data map[string]string) {
	bodies = map[string]string{
		"rules.json":  fmt.Sprintf(`{"rules":[%d],"version":3}`, n),
		"ca.pem":      fmt.Sprintf("%s\n%d %s", certificate, n, strings.Repeat("MIID", 10)),
		"limits.json": fmt.Sprintf(`{"data":{"limits":[%d]}}`, n),
	}
	data = map[string]string{
		"rules.json": bodies["rules.json"], "ca.pem": bodies["ca.pem"], "limits.json": fmt.Sprintf("[%d]", n),
	}
	return bodies, data
}

// ruled is a ConfigMap with the rules and the selection of deploy/docs/rules.md.
type ruled struct {
	*home
	*world.ConfigMap
	pages map[string]*origin.Page
	// fetch requests a fetch of all keys.
	fetch func(ctx context.Context, now int)
}

// annotated creates the ConfigMap with annotations.
func annotated(ctx context.Context, r *ruled) {
	asks := ""
	for key, page := range r.pages {
		asks += key + "=" + page.URL() + "\n"
	}
	r.ConfigMap = r.Create(ctx, "ruled", world.Asking(asks), world.Annotated("x-kv8s.io/curl-expect",
		"rules.json=size(json.rules) > 0\nrules.json=json.version >= 3\n"+
			`ca.pem=body.startsWith("`+certificate+`")`+"\nca.pem=size(body) * 2 > heldSize\n"),
		world.Annotated("x-kv8s.io/curl-select", "limits.json=json.data.limits"))
	r.fetch = func(ctx context.Context, now int) { r.Annotate(ctx, "x-kv8s.io/curl-now", fmt.Sprint(now)) }
}

// watched creates a Watcher that creates the ConfigMap.
func watched(ctx context.Context, r *ruled) {
	source := func(key, rest string) string {
		return `{key: ` + key + `, url: "` + r.pages[key].URL() + `", ` + rest + `}, `
	}
	w := r.apply(ctx, "ruled", `sources: [`+
		source("rules.json", `expect: [{rule: size(json.rules) > 0}, {rule: json.version >= 3}]`)+
		source("ca.pem", `expect: [{rule: 'body.startsWith("`+certificate+`")'}, {rule: size(body) * 2 > heldSize}]`)+
		source("limits.json", `select: json.data.limits`)+`]`)
	r.ConfigMap = r.Named("ruled-config")
	r.fetch = func(ctx context.Context, now int) {
		w.annotate(ctx, "x-kv8s.io/curl-now", strconv.Itoa(now))
	}
}

func (r *ruled) says(bodies map[string]string) {
	for key, page := range r.pages {
		page.Says(bodies[key])
	}
}

func (r *ruled) eventuallyHas(ctx context.Context, data map[string]string) {
	GinkgoHelper()
	for key, value := range data {
		r.EventuallyHasDataWithin(ctx, time.Minute, key, value)
		r.EventuallyReports(ctx, key, "")
	}
}

// killDuring kills a service during the GETs of all keys.
func (r *ruled) killDuring(ctx context.Context, now int, s *world.Service) {
	GinkgoHelper()
	var releases []func()
	for _, page := range r.pages {
		releases = append(releases, page.Hold())
	}
	r.fetch(ctx, now)
	for _, page := range r.pages {
		Eventually(ctx, page.Waiting).Should(Equal(1))
	}
	Expect(s.Kill()).To(Succeed())
	for _, release := range releases {
		release()
	}
	s.Restart(ctx)
}

// eventuallyRejects waits until every key reports the broken rule, and expects that all keep their values.
func (r *ruled) eventuallyRejects(ctx context.Context, bad answers, data map[string]string) {
	GinkgoHelper()
	for key, number := range bad.rules {
		Eventually(ctx, func() uint32 { return r.Status(ctx, key).Why().Rule }).WithTimeout(time.Minute).
			Should(Equal(number), key)
		r.EventuallyReports(ctx, key, "ContentRejected")
	}
	Expect(r.Get(ctx).Data).To(Equal(data))
}

// replay replays the failures.
func (r *ruled) replay(ctx context.Context) {
	GinkgoHelper()
	r.EventuallyQuiet(ctx)
	out, _ := exec.CommandContext(ctx, r.Program("curlctl"), "replay", "--nats-url", r.Broker(), "--host", "localhost",
		"--wait", "--timeout", "1m").CombinedOutput()
	Expect(string(out)).To(ContainSubstring("Outcome: 3 "))
}

var _ = DescribeTable("Rules and a selection keep the last good values through kills, replays and a wiped NATS",
	func(ctx SpecContext, create func(context.Context, *ruled)) {
		w := env.World(ctx, world.Options{AckWait: shortAckWait})
		r := &ruled{home: &home{World: w, keeper: w.Launch(ctx, world.Keeper)}, pages: map[string]*origin.Page{}}
		r.keeper.EventuallyReady(ctx)
		bodies, data := goodBodies(1)
		for key := range bodies {
			r.pages[key] = w.Origin.Page("/" + key)
		}
		r.says(bodies)
		create(ctx, r)
		r.eventuallyHas(ctx, data)

		for i, s := range []*world.Service{w.Watcher(), w.Fetcher(), w.Writer(), r.keeper} {
			bad := []answers{loginPages, halfFiles}[i%2]
			r.says(bad.bodies)
			r.killDuring(ctx, i+1, s)
			r.eventuallyRejects(ctx, bad, data)
		}
		r.replay(ctx)
		r.eventuallyRejects(ctx, halfFiles, data)
		bodies, data = goodBodies(2)
		r.says(bodies)
		r.replay(ctx)
		r.eventuallyHas(ctx, data)

		r.EventuallyQuiet(ctx)
		before := w.Origin.Hits()
		Expect(w.NATS.Wipe()).To(Succeed())
		Expect(w.NATS.Start()).To(Succeed())
		Eventually(ctx, w.JetStream.AccountInfo).ShouldNot(BeNil())
		w.MakeStreams(ctx)
		w.Create(ctx, "new", world.Asking("mydata="+w.Origin.Page("/new").Says("new").URL())).
			EventuallyHasDataWithin(ctx, time.Minute, "mydata", "new")
		r.EventuallyQuiet(ctx)
		Expect(w.Origin.Hits()).To(Equal(before+1), "only the new key is fetched")
		r.says(loginPages.bodies)
		r.fetch(ctx, 9)
		r.eventuallyRejects(ctx, loginPages, data)
	},
	Entry("by annotations", SpecTimeout(4*time.Minute), annotated),
	Entry("by a Watcher", SpecTimeout(4*time.Minute), watched),
)
