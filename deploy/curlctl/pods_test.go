package curlctl_test

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"

	"github.com/kv8s/curl-me-that/proto/suitetest"
	watchv1 "github.com/kv8s/curl-me-that/proto/watch/v1alpha1"
)

// podCreator creates pods with a status, since there is no kubelet.
type podCreator struct {
	client    kubernetes.Interface
	namespace string
}

func (p podCreator) create(ctx context.Context, text string, started time.Time) {
	GinkgoHelper()
	var pod corev1.Pod
	Expect(yaml.Unmarshal([]byte(text), &pod)).To(Succeed())
	for i := range pod.Spec.Containers {
		pod.Spec.Containers[i].Image = "registry.example/app"
	}
	created := suitetest.Must(p.client.CoreV1().Pods(p.namespace).Create(ctx, &pod, metav1.CreateOptions{}))
	if started.IsZero() {
		return
	}
	status := func(c corev1.Container) corev1.ContainerStatus {
		return corev1.ContainerStatus{
			Name: c.Name, Image: c.Image,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(started)}},
		}
	}
	created.Status.Phase = corev1.PodRunning
	for _, c := range created.Spec.Containers {
		created.Status.ContainerStatuses = append(created.Status.ContainerStatuses, status(c))
	}
	for _, c := range created.Spec.InitContainers {
		created.Status.InitContainerStatuses = append(created.Status.InitContainerStatuses, status(c))
	}
	pods := p.client.CoreV1().Pods(p.namespace)
	Expect(pods.UpdateStatus(ctx, created, metav1.UpdateOptions{})).Error().NotTo(HaveOccurred())
}

var _ = Describe("Pods", func() {
	open := func(ctx context.Context) podCreator {
		GinkgoHelper()
		client, _, namespace := inCluster(ctx)
		Expect(client.CoreV1().ServiceAccounts(namespace).Create(ctx,
			&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{})).Error().
			NotTo(HaveOccurred())
		return podCreator{client, namespace}
	}
	// fetched creates a ConfigMap whose key was fetched a day ago.
	fetched := func(ctx context.Context, p podCreator, name string) {
		GinkgoHelper()
		Expect(p.client.CoreV1().ConfigMaps(p.namespace).Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{
				"x-kv8s.io/curl-status": `{"page":{"url":"https://a.example.com","sha256":"` + strings.Repeat("ab", 32) +
					`","size":4,"fetchedAt":"` + time.Now().Add(-26*time.Hour).UTC().Format(time.RFC3339) + `"}}`,
			}},
			Data: map[string]string{"page": "page"},
		}, metav1.CreateOptions{FieldManager: "curl-me-that"})).Error().NotTo(HaveOccurred())
	}

	It("are listed in 80 columns with how they use a ConfigMap, and whether they can see its newest content",
		func(ctx SpecContext) {
			p := open(ctx)
			fetched(ctx, p, "rules")
			long, lately := time.Now().Add(-40*time.Hour), time.Now().Add(-20*time.Hour)
			p.create(ctx, `{metadata: {name: reader-7d9c5b8f4-abcde}, spec: {
				volumes: [{name: v, configMap: {name: rules}}],
				containers: [{name: app, volumeMounts: [{name: v, mountPath: /v}]}]}}`, long)
			p.create(ctx, `{metadata: {name: env-5f6d8c9b7-abcde}, spec: {
				containers: [{name: app, env: [{name: A, valueFrom: {configMapKeyRef: {name: rules, key: page}}}]}]}}`, long)
			p.create(ctx, `{metadata: {name: env-5f6d8c9b7-fghij}, spec: {
				containers: [{name: app, env: [{name: A, valueFrom: {configMapKeyRef: {name: rules, key: page}}}]}]}}`, lately)
			p.create(ctx, `{metadata: {name: file-0}, spec: {
				volumes: [{name: v, projected: {sources: [{configMap: {name: rules}}]}}],
				containers: [{name: app, envFrom: [{configMapRef: {name: rules}}], 
					volumeMounts: [{name: v, mountPath: /v/page, subPath: page}]}]}}`, long)
			p.create(ctx, `{metadata: {name: pending}, spec: {
				containers: [{name: app, envFrom: [{configMapRef: {name: rules}}]}]}}`, time.Time{})
			p.create(ctx, `{metadata: {name: other}, spec: {
				containers: [{name: app, envFrom: [{configMapRef: {name: others}}]}]}}`, long)
			GinkgoT().Setenv("COLUMNS", "80")
			r := runAs(ctx, "curlctl", time.Now, "pods", p.namespace+"/rules")
			Expect(r.code).To(BeZero(), r.err)
			golden("pods", strings.ReplaceAll(r.out, p.namespace, "team-a"))
			for line := range strings.Lines(r.out) {
				Expect(len([]rune(line))).To(BeNumerically("<=", 81), line)
			}

			var list struct {
				Items []struct {
					Pod, Container, Newest string
					Ways, Keys             []string
					Started, Changed       time.Time
				}
			}
			Expect(json.Unmarshal([]byte(runAs(ctx, "curlctl", time.Now, "pods", p.namespace+"/rules", "-o", "json").out),
				&list)).To(Succeed())
			Expect(list.Items).To(HaveLen(5))
			Expect(list.Items[0].Newest).To(Equal("no"))
			Expect(list.Items[0].Keys).To(Equal([]string{"page"}))
			Expect(list.Items[0].Started).To(BeTemporally("~", long, time.Second))
			Expect(list.Items[0].Changed).To(BeTemporally("~", time.Now().Add(-26*time.Hour), time.Minute))
			Expect(runAs(ctx, "curlctl", time.Now, "pods", p.namespace+"/rules", "-o", "wide").out).
				To(MatchRegexp(`env-5f6d8c9b7-abcde +app +env +40h +no +page`))
			Expect(runAs(ctx, "curlctl", time.Now, "pods", p.namespace+"/rules", "-o", "name").out).
				To(HavePrefix("pod/env-5f6d8c9b7-abcde\n"))
		})

	It("with the sidecar of a Watcher are found under either name", func(ctx SpecContext) {
		p := open(ctx)
		_, config, _ := inCluster(ctx)
		watcher(ctx, servingWatchers(ctx, config, p.namespace), "errors", map[string]any{
			"configData": map[string]any{"LEVEL": "warn"},
			"sources":    []any{map[string]any{"key": "page", "url": "http://10.0.0.1"}},
			"container":  map[string]any{"name": "watch", "image": "registry.example/watch"},
		})
		check := runAs(ctx, "curlctl", time.Now, "check", p.namespace+"/errors")
		Expect(check.code).To(Equal(7), check.err)
		Expect(check.out).To(MatchRegexp(p.namespace+`/errors-config +page +AddressDenied`),
			"even before the ConfigMap exists")

		Expect(p.client.CoreV1().ConfigMaps(p.namespace).Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: "errors-config", Labels: map[string]string{watchv1.WatcherLabel: "errors"}},
			Data:       map[string]string{"LEVEL": "warn"},
		}, metav1.CreateOptions{})).Error().NotTo(HaveOccurred())
		p.create(ctx, `{metadata: {name: web, annotations: {x-kv8s.io/injected: "errors=1"}}, spec: {
			initContainers: [{name: watch, image: registry.example/watch, restartPolicy: Always,
				env: [{name: LEVEL, valueFrom: {configMapKeyRef: {name: errors-config, key: LEVEL}}}]}],
			containers: [{name: app}]}}`, time.Now().Add(-20*time.Hour))
		for _, name := range []string{"errors", "errors-config"} {
			r := runAs(ctx, "curlctl", time.Now, "pods", p.namespace+"/"+name)
			Expect(r.out).To(MatchRegexp(`Watcher: +errors\n`), r.err)
			Expect(r.out).To(MatchRegexp(`web +watch +sidecar, env +20h +no\n`))
		}
	})

	It("are reported in one sentence if there are none", func(ctx SpecContext) {
		p := open(ctx)
		fetched(ctx, p, "rules")
		Expect(runAs(ctx, "curlctl", time.Now, "pods", p.namespace+"/rules").out).To(HaveSuffix("No running pod uses it.\n"))
		r := runAs(ctx, "curlctl", time.Now, "pods", p.namespace+"/missing")
		Expect(r.code).To(Equal(5))
		Expect(runAs(ctx, "curlctl", time.Now, "pods").code).To(Equal(2))
	})
})
