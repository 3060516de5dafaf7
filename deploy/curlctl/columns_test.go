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
	// tables are commands that print a table without a cluster.
	tables := [][]string{
		{"failing"},
		{"failures"},
		{"failures", "--summary"},
		{"wants"},
		{"timers"},
		{"status"},
		{"replay", "--all", "--dry-run"},
		{"check", "-f", "testdata/columns.yaml"},
	}

	// filled publishes failing keys, one of them with long names, failures, and an audit record.
	filled := func(ctx context.Context, w *world) {
		GinkgoHelper()
		long := pipeline.Key{
			Namespace: "team-of-the-prices-and-of-all-other-lists-of-the-shop-in-europe",
			Name:      strings.Repeat("prices-of-all-articles.", 5) + "v1", Key: strings.Repeat("list-", 20) + "json",
		}
		shop := pipeline.Key{Namespace: "shop", Name: "prices", Key: "list.json"}
		keys := []pipeline.Key{shop, long, {Namespace: "shop", Name: "news", Key: "page"}}
		for i, key := range keys {
			url := fmt.Sprintf("https://%s.example.com/%s",
				[]string{"a", "the-longest-host-of-all-that-have-ever-been", "c"}[i], strings.Repeat("path/", 1+20*(i%2)))
			due := &v1.Due{
				Cause: v1.Cause_CAUSE_RECHECK, Attempts: uint32(i),
				Reported: v1.FailureClass_FAILURE_CLASS_BAD_STATUS, StatusCode: 429,
				WaitsFor:      v1.WaitsFor_WAITS_FOR_PAUSE,
				FirstFailedAt: timestamppb.New(time.Now().Add(-time.Duration(i+1) * time.Hour)),
			}
			want := w.timed(ctx, key, url, due, time.Duration(i+1)*time.Hour+55*time.Second,
				func(w *v1.Want) { w.Refresh = durationpb.New(10 * time.Minute) })
			w.fail(ctx, want, v1.FailureClass_FAILURE_CLASS_BAD_STATUS)
		}
		purged := w.run(ctx, "failures", "purge", "--reason=BadStatus", "--namespace=shop", "--name=news",
			"--host=c.example.com", "--yes")
		Expect(purged.code).To(BeZero(), purged.err)
		w.backlog(ctx, len(keys))
	}

	DescribeTable("shows every table without wrapped lines, and hides the least useful columns first",
		func(ctx SpecContext, width int) {
			w := newWorld(ctx)
			filled(ctx, w)
			GinkgoT().Setenv("COLUMNS", strconv.Itoa(width))
			var page strings.Builder
			for _, args := range tables {
				fmt.Fprintf(&page, "$ curlctl %s\n%s\n", strings.Join(args, " "), w.run(ctx, args...).out)
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
