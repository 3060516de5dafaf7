package inbox

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	"k8s.io/apimachinery/pkg/util/validation"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/status"
)

func aResult() *v1.Result {
	sum := sha256.Sum256([]byte("body"))
	return &v1.Result{
		Want:     &v1.Want{Namespace: "ns", Name: "cm.with.dots", Key: "my_data.txt", Uid: "uid", Url: "https://x", Epoch: 1},
		Sequence: 7,
		Outcome:  &v1.Result_Content{Content: &v1.Content{Body: []byte("body"), Sha256: hex.EncodeToString(sum[:])}},
	}
}

// beyond is a time that JSON has no form for.
func beyond() *timestamppb.Timestamp { return &timestamppb.Timestamp{Seconds: 1 << 60} }

// ofObject makes a result about the annotations of its object.
func ofObject(r *v1.Result) *v1.Want {
	r.Sequence, r.Want.Url, r.Want.Key = 0, "", "*"
	r.Outcome = &v1.Result_Reconcile{Reconcile: &v1.Reconcile{}}
	return r.GetWant()
}

func fail(r *v1.Result, f *v1.Failure) { r.Outcome = &v1.Result_Failure{Failure: f} }

func TestRead(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*v1.Result)
		want   error
		class  v1.FailureClass
	}{
		"good":                {func(*v1.Result) {}, nil, 0},
		"failure":             {func(r *v1.Result) { r.Outcome = &v1.Result_Failure{Failure: &v1.Failure{}} }, nil, 0},
		"failure without url": {func(r *v1.Result) { r.Want.Url, r.Outcome = "", &v1.Result_Failure{} }, errMalformed, v1.FailureClass_FAILURE_CLASS_MALFORMED},
		"demanded digest":     {func(r *v1.Result) { r.Want.Sha256 = r.GetContent().GetSha256() }, nil, 0},
		"other digest":        {func(r *v1.Result) { r.GetContent().Body = []byte("other") }, errDigest, v1.FailureClass_FAILURE_CLASS_DIGEST_MISMATCH},
		"no digest":           {func(r *v1.Result) { r.GetContent().Sha256 = "" }, errDigest, v1.FailureClass_FAILURE_CLASS_DIGEST_MISMATCH},
		"undemanded digest":   {func(r *v1.Result) { r.Want.Sha256 = strings.Repeat("0", 64) }, errDigest, v1.FailureClass_FAILURE_CLASS_DIGEST_MISMATCH},
		"no outcome":          {func(r *v1.Result) { r.Outcome = nil }, errMalformed, v1.FailureClass_FAILURE_CLASS_MALFORMED},
		"no uid":              {func(r *v1.Result) { r.Want.Uid = "" }, errMalformed, v1.FailureClass_FAILURE_CLASS_MALFORMED},
		"no sequence":         {func(r *v1.Result) { r.Sequence = 0 }, errMalformed, v1.FailureClass_FAILURE_CLASS_MALFORMED},
		"epoch past the end":  {func(r *v1.Result) { r.Want.Epoch = status.MaxEpoch + 1 }, errMalformed, v1.FailureClass_FAILURE_CLASS_MALFORMED},
		"epoch below zero":    {func(r *v1.Result) { r.Want.Epoch = -1 }, errMalformed, v1.FailureClass_FAILURE_CLASS_MALFORMED},
		"last epoch":          {func(r *v1.Result) { r.Want.Epoch = status.MaxEpoch }, nil, 0},
		"no namespace":        {func(r *v1.Result) { r.Want.Namespace = "" }, errMalformed, v1.FailureClass_FAILURE_CLASS_MALFORMED},
		"time of observation": {func(r *v1.Result) { r.ObservedAt = beyond() }, errMalformed, v1.FailureClass_FAILURE_CLASS_MALFORMED},
		"time of failure":     {func(r *v1.Result) { fail(r, &v1.Failure{FirstFailedAt: beyond()}) }, errMalformed, v1.FailureClass_FAILURE_CLASS_MALFORMED},
		"time of next look":   {func(r *v1.Result) { fail(r, &v1.Failure{NextAt: beyond()}) }, errMalformed, v1.FailureClass_FAILURE_CLASS_MALFORMED},
		"illegal key":         {func(r *v1.Result) { r.Want.Key = "$patch" }, errMalformed, v1.FailureClass_FAILURE_CLASS_MALFORMED},
		"annotations":         {func(r *v1.Result) { ofObject(r) }, nil, 0},
		"annotations, no uid": {func(r *v1.Result) { ofObject(r).Uid = "" }, errMalformed, v1.FailureClass_FAILURE_CLASS_MALFORMED},
		"annotations of key":  {func(r *v1.Result) { ofObject(r).Key = "k" }, errMalformed, v1.FailureClass_FAILURE_CLASS_MALFORMED},
		"annotations, time":   {func(r *v1.Result) { ofObject(r); r.ObservedAt = beyond() }, errMalformed, v1.FailureClass_FAILURE_CLASS_MALFORMED},
		"body of the object":  {func(r *v1.Result) { r.Want.Key = "*" }, errMalformed, v1.FailureClass_FAILURE_CLASS_MALFORMED},
		"path as name":        {func(r *v1.Result) { r.Want.Name = "../../secrets/x" }, errMalformed, v1.FailureClass_FAILURE_CLASS_MALFORMED},
		"path as namespace":   {func(r *v1.Result) { r.Want.Namespace = "../../nodes" }, errMalformed, v1.FailureClass_FAILURE_CLASS_MALFORMED},
		"protected namespace": {func(r *v1.Result) { r.Want.Namespace = "kube-system" }, errProtected, v1.FailureClass_FAILURE_CLASS_WRITE_FAILED},
		"protected name":      {func(r *v1.Result) { r.Want.Name = "kube-root-ca.crt" }, errProtected, v1.FailureClass_FAILURE_CLASS_WRITE_FAILED},
	} {
		t.Run(name, func(t *testing.T) {
			r := aResult()
			tt.change(r)
			data, err := proto.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			subject := pipeline.KeyOf(r.GetWant()).Content()
			if r.GetReconcile() != nil {
				subject = pipeline.KeyOf(r.GetWant()).Reconcile()
			}
			item, err := Config{Protected: []string{"kube-system"}}.read(subject, data)
			if !errors.Is(err, tt.want) {
				t.Fatalf("%v, want %v", err, tt.want)
			}
			if err != nil && classOf(err) != tt.class {
				t.Errorf("class %v, want %v", classOf(err), tt.class)
			}
			if item.Key != pipeline.KeyOf(r.GetWant()) {
				t.Errorf("key %v", item.Key)
			}
		})
	}
}

// The subject names the object; a payload for another one is refused.
func TestReadRefusesAnotherObject(t *testing.T) {
	data, err := proto.Marshal(aResult())
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []pipeline.Key{
		{Namespace: "other", Name: "cm.with.dots", Key: "my_data.txt"},
		{Namespace: "ns", Name: "other", Key: "my_data.txt"},
		{Namespace: "ns", Name: "cm.with.dots", Key: "other"},
	} {
		if _, err := (Config{}).read(key.Content(), data); !errors.Is(err, errMalformed) {
			t.Errorf("%v: %v", key, err)
		}
	}
}

// A fetcher publishes bodies and failures. It has no keys removed, which the watcher
// does not where they are too many, and no sentence put before their owner.
func TestReadRefusesFromAFetcherToReconcile(t *testing.T) {
	r := aResult()
	ofObject(r)
	data, err := proto.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, subject := range []string{pipeline.KeyOf(r.GetWant()).Content(), pipeline.KeyOf(r.GetWant()).Failure()} {
		if _, err := (Config{}).read(subject, data); !errors.Is(err, errMalformed) {
			t.Errorf("%s: %v", subject, err)
		}
	}
}

// Nor does what the watcher may publish bring a body.
func TestReadRefusesBodiesFromTheWatcher(t *testing.T) {
	data, err := proto.Marshal(aResult())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := (Config{}).read(pipeline.KeyOf(aResult().GetWant()).Reconcile(), data); !errors.Is(err, errMalformed) {
		t.Error(err)
	}
}

func FuzzRead(f *testing.F) {
	good, err := proto.Marshal(aResult())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(pipeline.KeyOf(aResult().GetWant()).Content(), good)
	f.Add("curl.result.reconcile.a.b.c", []byte{})
	f.Add("curl.result.content.a.%2E%2E%2Fb.c", []byte("\xff"))
	f.Fuzz(func(t *testing.T, subject string, data []byte) {
		item, err := Config{Protected: []string{"kube-system"}}.read(subject, data)
		if err != nil {
			return
		}
		if len(validation.IsDNS1123Label(item.Key.Namespace)) > 0 || len(validation.IsDNS1123Subdomain(item.Key.Name)) > 0 ||
			item.Key.Namespace == "kube-system" || !item.OfObject() && (len(validation.IsConfigMapKey(item.Key.Key)) > 0 || item.Fence.Seq == 0) {
			t.Errorf("read %+v", item)
		}
	})
}
