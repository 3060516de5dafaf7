package curlctl_test

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// seconds matches the age of an audit record.
var seconds = regexp.MustCompile(`(?m)^\d+s +(purge|replay)`)

var _ = Describe("A terminal", func() {
	// tables are the commands with a table, except commands that read Kubernetes.
	tables := [][]string{
		{"failing"},
		{"failures"},
		{"failures", "--summary"},
		{"wants"},
		{"timers"},
		{"status"},
		{"audit"},
		{"replay", "--all", "--dry-run"},
		{"check", "-f", "testdata/columns.yaml"},
	}

	// run runs a command 20 minutes from now, so that ages do not change during the spec.
	run := func(ctx context.Context, w *world, args ...string) result {
		later := func() time.Time { return time.Now().Add(20*time.Minute + 5*time.Second) }
		return runAs(ctx, "curlctl", later, append(args, w.connect...)...)
	}

	// filled has keys in each condition, one with names of maximum length, failures, and an audit
	// record.
	filled := func(ctx context.Context, w *world) {
		GinkgoHelper()
		long := pipeline.Key{
			Namespace: "team-of-the-prices-and-of-all-other-lists-of-the-shop-in-europe",
			Name:      strings.Repeat("prices-of-all-articles.", 5) + "v1", Key: strings.Repeat("list-", 20) + "json",
		}
		shop := pipeline.Key{Namespace: "shop", Name: "prices", Key: "list.json"}
		keys := []pipeline.Key{shop, long, {Namespace: "shop", Name: "news", Key: "page"}}
		for i, key := range keys {
			want, sequence := w.want(ctx, key, fmt.Sprintf("https://%s.example.com/%s",
				[]string{"a", "the-longest-host-of-all-that-have-ever-been", "c"}[i], strings.Repeat("path/", 1+20*(i%2))),
				func(w *v1.Want) { w.Refresh = durationpb.New(10 * time.Minute) })
			due := &v1.Due{
				Want: want, WantSequence: sequence, Cause: v1.Cause_CAUSE_RECHECK, Attempts: uint32(i),
				Reported: v1.FailureClass_FAILURE_CLASS_BAD_STATUS, StatusCode: 429,
				WaitsFor:      v1.WaitsFor_WAITS_FOR_PAUSE,
				FirstFailedAt: timestamppb.New(time.Now().Add(-time.Duration(i+1) * time.Hour)),
			}
			Expect(w.client.SetTimer(ctx, due, time.Now().Add(time.Duration(i+1)*time.Hour+55*time.Second))).Error().
				NotTo(HaveOccurred())
			w.fail(ctx, want, v1.FailureClass_FAILURE_CLASS_BAD_STATUS, pipeline.HostOf(want.GetUrl()))
		}
		purged := run(ctx, w, "failures", "purge", "--reason=BadStatus", "--namespace=shop", "--name=news",
			"--host=c.example.com", "--yes")
		Expect(purged.code).To(BeZero(), purged.err)
		Eventually(func() (uint64, error) { // a message waits for the fetchers a moment after it was published
			consumer, err := w.js.Consumer(ctx, pipeline.Requests, pipeline.FetcherConsumer)
			if err != nil {
				return 0, err
			}
			return consumer.CachedInfo().NumPending, nil
		}).Should(BeEquivalentTo(len(keys)))
	}

	DescribeTable("shows every table without wrapped lines, and hides the least useful columns first",
		func(ctx SpecContext, width int) {
			w := newWorld(ctx)
			filled(ctx, w)
			GinkgoT().Setenv("COLUMNS", strconv.Itoa(width))
			var page strings.Builder
			for _, args := range tables {
				fmt.Fprintf(&page, "$ curlctl %s\n%s\n", strings.Join(args, " "), run(ctx, w, args...).out)
			}
			for line := range strings.Lines(page.String()) {
				Expect(utf8.RuneCountInString(strings.TrimRight(line, "\n"))).To(BeNumerically("<=", width), line)
			}
			golden("columns-"+strconv.Itoa(width), seconds.ReplaceAllString(page.String(), "5s    $1"))
		},
		Entry("80 columns", 80), Entry("120 columns", 120),
	)

	It("shows everything with -o wide", func(ctx SpecContext) {
		w := newWorld(ctx)
		filled(ctx, w)
		GinkgoT().Setenv("COLUMNS", "80")
		for _, args := range tables[:7] {
			Expect(w.ok(ctx, append(args, "-o", "wide")...)).NotTo(ContainSubstring("…"), "%v", args)
		}
	})

	It("shows the doctor in 100 columns", func(ctx SpecContext) {
		w := newWorld(ctx)
		filled(ctx, w)
		for _, width := range []string{"100", ""} {
			GinkgoT().Setenv("COLUMNS", width)
			for line := range strings.Lines(w.run(ctx, "doctor").out) {
				Expect(utf8.RuneCountInString(strings.TrimRight(line, "\n"))).To(BeNumerically("<=", 100), line)
			}
		}
	})
})
