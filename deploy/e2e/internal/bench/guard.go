package bench

import (
	"context"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/system"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/manifest"
)

// guarded is the release that the policy is rendered for, and its namespace.
const guarded = "curl-me-that-bench"

// guard is the ValidatingAdmissionPolicy of the writer, which applies to whoever uses its
// kubeconfig.
type guard struct {
	// kubeconfig acts as the account of the writer, and may do everything.
	kubeconfig string
	policies   []*unstructured.Unstructured
	objects    *manifest.Client
	account    kubernetes.Interface
}

// newGuard renders the policy, and writes the kubeconfig.
func newGuard(ctx context.Context, kubeconfig string) (*guard, error) {
	config, err := clientcmd.LoadFromFile(os.Getenv("KUBECONFIG"))
	if err != nil {
		return nil, fmt.Errorf("read $KUBECONFIG: %w", err)
	}
	for _, user := range config.AuthInfos {
		user.Impersonate = "system:serviceaccount:" + guarded + ":" + guarded + "-writer"
		user.ImpersonateGroups = []string{"system:masters"}
	}
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		return nil, fmt.Errorf("write a kubeconfig: %w", err)
	}
	g := &guard{kubeconfig: kubeconfig}
	g.policies, err = manifest.Render(ctx, manifest.Chart{
		Dir: "deploy/chart", Release: guarded, Namespace: guarded, Templates: []string{"admission-writer.yaml"}, Set: []string{"networkPolicy.enabled=false"},
	})
	if err != nil {
		return nil, err
	}
	own, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err == nil {
		g.objects, err = manifest.NewClient(own)
	}
	if err != nil {
		return nil, err
	}
	acting, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err == nil {
		g.account, err = kubernetes.NewForConfig(acting)
	}
	return g, err
}

// begin puts the policy in force, end takes it away, and both return when that is so.
func (g *guard) begin(ctx context.Context) error {
	if err := g.objects.Apply(ctx, guarded, g.policies); err != nil {
		return err
	}
	return g.await(ctx, true)
}

func (g *guard) end(ctx context.Context) error {
	if err := g.objects.Delete(ctx, guarded, g.policies); err != nil {
		return err
	}
	return g.await(ctx, false)
}

// await looks by what the policy forbids: to create a ConfigMap.
func (g *guard) await(ctx context.Context, inForce bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, fmt.Errorf("%w: the policy has no effect", ErrWrong))
	defer cancel()
	for {
		_, err := g.account.CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(ctx,
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "bench-"}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if apierrors.IsForbidden(err) == inForce && (err == nil || inForce) {
			return nil
		}
		if err := system.Pause(ctx, lookEvery); err != nil {
			return err
		}
	}
}

// lookEvery is how often it is looked whether the policy is in force.
const lookEvery = 50 * time.Millisecond
