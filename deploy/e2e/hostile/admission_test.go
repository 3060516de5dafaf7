package hostile_test

import (
	"context"
	_ "embed" // the webhook and the policy
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admission "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/hostile"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/deploy/local/controlplane"
	"github.com/kv8s/curl-me-that/proto/annotation"
)

// admissionManifest has a webhook and a policy, with placeholders.
//
//go:embed admission.yaml
var admissionManifest string

// brokenWrites are the kinds of objects of breakWrites, and the first part of their names.
var brokenWrites = []string{"broken", "hanging", "stripped", "large"}

// breakWrites creates n objects in the tenant's namespace. A webhook hangs for some and returns a patch that does
// not apply for others, a policy removes curl-status, and the rest have too much metadata for their bodies.
func breakWrites(ctx context.Context, a *hostile.Tenant, n int) {
	GinkgoHelper()
	over := make(chan struct{})
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		review := &admission.AdmissionReview{}
		if json.NewDecoder(r.Body).Decode(review) != nil || review.Request == nil {
			return
		}
		review.Response = &admission.AdmissionResponse{UID: review.Request.UID, Allowed: true}
		switch kind, _, _ := strings.Cut(review.Request.Name, "-"); kind {
		case "hanging":
			<-over
		case "broken":
			review.Response.PatchType = new(admission.PatchTypeJSONPatch)
			review.Response.Patch = []byte(`[{"op":"remove","path":"/spec/missing"}]`)
		}
		review.Request = nil
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(review)
	}))
	DeferCleanup(server.Close)
	DeferCleanup(func() { close(over) })
	bundle := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	manifest := strings.NewReplacer("NAMESPACE", a.Namespace, "ADDRESS", server.URL,
		"BUNDLE", base64.StdEncoding.EncodeToString(bundle)).Replace(admissionManifest)
	Expect(controlplane.ApplyManifest(ctx, a.Cluster.Config, "e2e", "", []byte(manifest))).To(Succeed())
	api, maps := a.Cluster.Client.AdmissionregistrationV1(), a.Cluster.Client.CoreV1().ConfigMaps(a.Namespace)
	DeferCleanup(func(ctx SpecContext) {
		Expect(api.MutatingWebhookConfigurations().Delete(ctx, a.Namespace, metav1.DeleteOptions{})).To(Succeed())
		Expect(api.MutatingAdmissionPolicyBindings().Delete(ctx, a.Namespace, metav1.DeleteOptions{})).To(Succeed())
		Expect(api.MutatingAdmissionPolicies().Delete(ctx, a.Namespace, metav1.DeleteOptions{})).To(Succeed())
		a.Clear(ctx)
	})
	a.Create(ctx, "broken-probe")
	a.Create(ctx, "stripped-probe")
	status := func(name string) (string, error) {
		cm, err := maps.Patch(ctx, name, types.MergePatchType,
			[]byte(`{"metadata":{"annotations":{"`+annotation.StatusKey+`":"{}"}}}`),
			metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		return cm.Annotations[annotation.StatusKey], err
	}
	Eventually(func() error {
		_, err := status("broken-probe")
		return err
	}).ShouldNot(Succeed())
	Eventually(status).WithArguments("stripped-probe").Should(BeEmpty())

	pages := map[string]string{}
	for _, kind := range brokenWrites {
		pages[kind] = a.Origin.Page("/" + kind).Says(kind).URL()
	}
	a.Origin.Page("/large").Says(strings.Repeat("x", 900_000))
	for i := range n {
		kind := brokenWrites[i%len(brokenWrites)]
		a.Create(ctx, fmt.Sprintf("%s-%d", kind, i), world.Asking("mydata="+pages[kind]), func(o *corev1.ConfigMap) {
			for n := range 4_800 {
				if kind == "large" {
					o.OwnerReferences = append(o.OwnerReferences, metav1.OwnerReference{
						APIVersion: "v1", Kind: "Pod", Name: strings.Repeat("n", 200), UID: types.UID(fmt.Sprintf("%036d", n)),
					})
				}
			}
		})
	}
}
