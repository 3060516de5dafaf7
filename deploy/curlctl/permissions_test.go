package curlctl_test

import (
	"context"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/curlctl/broker"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
)

var _ = Describe("An identity", func() {
	var w *world
	BeforeEach(func(ctx SpecContext) {
		w = guarded(ctx)
		for i := range 3 {
			w.fail(ctx, w.timed(ctx, cm(i), "https://a.example.com/", &v1.Due{
				Cause: v1.Cause_CAUSE_RECHECK, Reported: v1.FailureClass_FAILURE_CLASS_TIMEOUT,
			}, time.Hour), v1.FailureClass_FAILURE_CLASS_TIMEOUT)
		}
	})

	// reading has commands that every identity may run.
	reading := [][]string{
		{"failures"},
		{"failures", "--summary"},
		{"failures", "--host=a.example.com", "--since=1h"},
		{"failures", "show", "1"},
		{"wants"},
		{"wants", "-A"},
		{"status"},
		{"replay", "--all", "--dry-run"},
		{"setup", "--dry-run"},
		{"__complete", "failures", "show", ""},
		{"__complete", "replay", "--host", ""},
		{"failing"},
		{"failing", "-o", "json"},
		{"__complete", "wants", "--namespace", ""},
	}
	replaying := [][]string{
		{"replay", "1"}, {"replay", "--all", "--rate=100"}, {"refetch", "default/cm-001"}, {"refetch", "--all"},
	}
	administering := [][]string{
		{"pause"}, {"resume"}, {"failures", "purge", "--since=1h", "--yes"}, {"failures", "purge", "--all", "--yes"},
	}

	can := func(ctx context.Context, user string, all ...[]string) {
		GinkgoHelper()
		for _, args := range all {
			r := w.as(user).run(ctx, args...)
			Expect(r.code).To(BeZero(), "%s: %v\n%s%s", user, args, r.out, r.err)
		}
	}
	cannot := func(ctx context.Context, user string, all ...[]string) {
		GinkgoHelper()
		before := w.lastSequences()
		for _, args := range all {
			begun := time.Now()
			r := w.as(user).run(ctx, args...)
			Expect(r.code).To(Equal(4), "%s: %v\n%s%s", user, args, r.out, r.err)
			Expect(r.err).To(ContainSubstring("this NATS user may not publish to "))
			Expect(strings.Count(r.err, "\n")).To(Equal(1))
			Expect(time.Since(begun)).To(BeNumerically("<", 8*time.Second), "less than the timeout of a request")
		}
		Expect(w.lastSequences()).To(Equal(before))
		Expect(w.failed(ctx)).To(Equal(3))
	}

	It("of a viewer sees everything and changes nothing", func(ctx SpecContext) {
		can(ctx, broker.Viewer, reading...)
		cannot(ctx, broker.Viewer, replaying...)
		cannot(ctx, broker.Viewer, administering...)
	})

	It("of a replayer also replays and refetches", func(ctx SpecContext) {
		can(ctx, broker.Replayer, reading...)
		cannot(ctx, broker.Replayer, administering...)
		can(ctx, broker.Replayer, replaying...)
	})

	It("of a replayer waits for a replay", func(ctx SpecContext) {
		r := w.as(broker.Replayer).run(ctx, "replay", "--all", "--wait", "--timeout=3s")
		Expect(r.code).To(Equal(6), r.err)
		Expect(r.out).To(ContainSubstring("3 pending"))
	})

	It("without a permission that only waiting needs is told so", func(ctx SpecContext) {
		w = configured(ctx, `authorization { users: [ { user: app, password: p }, { user: blind, password: p,
			permissions: { publish: { deny: "$JS.API.STREAM.INFO.CURL_RESULTS" } } } ] }`)
		site := newOrigin()
		site.up.Store(true)
		w.failing(ctx, cm(1), site.URL)
		w.fetch()
		r := w.as("blind").run(ctx, "replay", "--all", "--also-recovered", "--wait", "--timeout=30s")
		Expect(r.code).To(Equal(4), r.err)
		Expect(r.err).To(ContainSubstring("this NATS user may not publish to $JS.API.STREAM.INFO.CURL_RESULTS"))
	})

	It("of an admin does everything", func(ctx SpecContext) {
		can(ctx, broker.Admin, reading...)
		can(ctx, broker.Admin, replaying...)
		can(ctx, broker.Admin, administering...)
	})

	It("is recognized by the doctor", func(ctx SpecContext) {
		for user, all := range map[string]string{
			broker.Viewer: "viewer", broker.Replayer: "viewer, replayer", broker.Admin: "viewer, replayer, admin",
		} {
			Expect(flat(w.as(user).run(ctx, "doctor").out)).
				To(ContainSubstring("user " + user + " has the permissions of " + all + " streams "))
		}
	})
})

// guarded runs a broker with a user app, and a user per identity with exactly its permissions.
func guarded(ctx context.Context) *world {
	GinkgoHelper()
	list := func(subjects []string, user string) string {
		quoted := make([]string, len(subjects))
		for i, s := range subjects {
			quoted[i] = `"` + strings.Replace(s, ".USER.>", "."+user+".>", 1) + `"`
		}
		return "[" + strings.Join(quoted, ", ") + "]"
	}
	var users strings.Builder
	for _, i := range broker.Identities() {
		fmt.Fprintf(&users, "{ user: %s, password: p, permissions: { publish: %s, subscribe: %s } }\n", i.Name,
			list(i.Publish, i.Name), list(i.Subscribe, i.Name))
	}
	w := configured(ctx, "authorization { users: [\n{ user: app, password: p }\n"+users.String()+"] }\n")
	w.connect = nil // each spec selects a user
	return w
}
