package apply

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	"k8s.io/apimachinery/pkg/util/validation"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/status"
)

func aResult() *v1.Result {
	return &v1.Result{
		Want:     &v1.Want{Namespace: "ns", Name: "cm.with.dots", Key: "my_data.txt", Uid: "uid", Url: "https://x", Epoch: 1},
		Sequence: 7,
		Outcome:  &v1.Result_Content{Content: &v1.Content{Body: []byte("body"), Sha256: pipeline.Digest("body")}},
	}
}

// beyond is a time that JSON cannot express.
func beyond() *timestamppb.Timestamp { return &timestamppb.Timestamp{Seconds: 1 << 60} }

// ofObject turns r into a result about the whole object and returns its want.
func ofObject(r *v1.Result) *v1.Want {
	r.Sequence, r.Want.Url, r.Want.Key = 0, "", "*"
	r.Outcome = &v1.Result_Sync{Sync: &v1.Sync{}}
	return r.GetWant()
}

func fail(r *v1.Result, f *v1.Failure) { r.Outcome = &v1.Result_Failure{Failure: f} }

func encodeResult(tb testing.TB, r *v1.Result) []byte {
	tb.Helper()
	data, err := proto.Marshal(r)
	NewWithT(tb).Expect(err).NotTo(HaveOccurred())
	return data
}

func TestRead(t *testing.T) {
	const (
		malformed = v1.FailureClass_FAILURE_CLASS_MALFORMED
		digest    = v1.FailureClass_FAILURE_CLASS_DIGEST_MISMATCH
		protected = v1.FailureClass_FAILURE_CLASS_WRITE_FAILED
	)
	for name, tt := range map[string]struct {
		change func(*v1.Result)
		class  v1.FailureClass
	}{
		"good":                    {func(*v1.Result) {}, 0},
		"failure":                 {func(r *v1.Result) { r.Outcome = &v1.Result_Failure{Failure: &v1.Failure{}} }, 0},
		"failure without url":     {func(r *v1.Result) { r.Want.Url, r.Outcome = "", &v1.Result_Failure{} }, malformed},
		"required digest":         {func(r *v1.Result) { r.Want.Sha256 = r.GetContent().GetSha256() }, 0},
		"other digest":            {func(r *v1.Result) { r.GetContent().Body = []byte("other") }, digest},
		"no digest":               {func(r *v1.Result) { r.GetContent().Sha256 = "" }, digest},
		"not the required digest": {func(r *v1.Result) { r.Want.Sha256 = strings.Repeat("0", 64) }, digest},
		"no outcome":              {func(r *v1.Result) { r.Outcome = nil }, malformed},
		"no uid":                  {func(r *v1.Result) { r.Want.Uid = "" }, malformed},
		"no sequence":             {func(r *v1.Result) { r.Sequence = 0 }, malformed},
		"epoch past the end":      {func(r *v1.Result) { r.Want.Epoch = status.MaxEpoch + 1 }, malformed},
		"epoch below zero":        {func(r *v1.Result) { r.Want.Epoch = -1 }, malformed},
		"last epoch":              {func(r *v1.Result) { r.Want.Epoch = status.MaxEpoch }, 0},
		"no namespace":            {func(r *v1.Result) { r.Want.Namespace = "" }, malformed},
		"time of observation":     {func(r *v1.Result) { r.ObservedAt = beyond() }, malformed},
		"time of failure":         {func(r *v1.Result) { fail(r, &v1.Failure{FirstFailedAt: beyond()}) }, malformed},
		"time of next try":        {func(r *v1.Result) { fail(r, &v1.Failure{NextAt: beyond()}) }, malformed},
		"illegal key":             {func(r *v1.Result) { r.Want.Key = "$patch" }, malformed},
		"annotations":             {func(r *v1.Result) { ofObject(r) }, 0},
		"annotations, no uid":     {func(r *v1.Result) { ofObject(r).Uid = "" }, malformed},
		"annotations of key":      {func(r *v1.Result) { ofObject(r).Key = "k" }, malformed},
		"annotations, time":       {func(r *v1.Result) { ofObject(r); r.ObservedAt = beyond() }, malformed},
		"body of the object":      {func(r *v1.Result) { r.Want.Key = "*" }, malformed},
		"path as name":            {func(r *v1.Result) { r.Want.Name = "../../secrets/x" }, malformed},
		"path as namespace":       {func(r *v1.Result) { r.Want.Namespace = "../../nodes" }, malformed},
		"protected namespace":     {func(r *v1.Result) { r.Want.Namespace = "kube-system" }, protected},
		"protected name":          {func(r *v1.Result) { r.Want.Name = "kube-root-ca.crt" }, protected},
	} {
		t.Run(name, func(t *testing.T) {
			r := aResult()
			tt.change(r)
			subject := pipeline.KeyOf(r.GetWant()).ContentSubject()
			if r.GetSync() != nil {
				subject = pipeline.KeyOf(r.GetWant()).SyncSubject()
			}
			item, err := parseMessage(subject, encodeResult(t, r), []string{"kube-system"})
			g := NewWithT(t)
			if tt.class == 0 {
				g.Expect(err).NotTo(HaveOccurred())
			} else {
				g.Expect(err).To(HaveOccurred())
				g.Expect(pipeline.FailureClass(err)).To(Equal(tt.class))
			}
			g.Expect(item.Key).To(Equal(pipeline.KeyOf(r.GetWant())))
		})
	}
}

// The subject identifies the object and decides who may publish: fetchers publish bodies and failures, and
// only the watcher may request removals.
func TestReadRefusesAnotherSubject(t *testing.T) {
	key, ofObjectResult := pipeline.KeyOf(aResult().GetWant()), aResult()
	objectKey := pipeline.KeyOf(ofObject(ofObjectResult))
	for subject, r := range map[string]*v1.Result{
		pipeline.Key{Namespace: "other", Name: key.Name, Key: key.Key}.ContentSubject():       aResult(),
		pipeline.Key{Namespace: key.Namespace, Name: "other", Key: key.Key}.ContentSubject():  aResult(),
		pipeline.Key{Namespace: key.Namespace, Name: key.Name, Key: "other"}.ContentSubject(): aResult(),
		key.SyncSubject():          aResult(),
		objectKey.ContentSubject(): ofObjectResult,
		objectKey.FailureSubject(): ofObjectResult,
	} {
		_, err := parseMessage(subject, encodeResult(t, r), nil)
		NewWithT(t).Expect(err).To(MatchError(errMalformed), subject)
	}
}

func FuzzRead(f *testing.F) {
	f.Add(pipeline.KeyOf(aResult().GetWant()).ContentSubject(), encodeResult(f, aResult()))
	f.Add("curl.result.sync.a.b.c", []byte{})
	f.Add("curl.result.content.a.%2E%2E%2Fb.c", []byte("\xff"))
	f.Fuzz(func(t *testing.T, subject string, data []byte) {
		item, err := parseMessage(subject, data, []string{"kube-system"})
		if err != nil {
			return
		}
		if len(validation.IsDNS1123Label(item.Key.Namespace)) > 0 || len(validation.IsDNS1123Subdomain(item.Key.Name)) > 0 ||
			item.Key.Namespace == "kube-system" || !item.OfObject() &&
			(len(validation.IsConfigMapKey(item.Key.Key)) > 0 || item.Fence.Seq == 0) {
			t.Errorf("read %+v", item)
		}
	})
}
