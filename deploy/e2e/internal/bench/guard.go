package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/cluster"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/system"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/manifest"
	"github.com/kv8s/curl-me-that/deploy/local/controlplane/access"
)

// guarded is the release that the account of the writer and its policy are rendered for.
const guarded = "curl-me-that-bench"

// guard is the account of the writer as the chart has it, with a token as pods have
// one, and the ValidatingAdmissionPolicy that applies to it.
type guard struct {
	// kubeconfig acts as the account.
	kubeconfig string
	// rights are in force from newGuard on, policies from begin to end.
	rights, policies []*unstructured.Unstructured
	objects          *access.Applier
	account          kubernetes.Interface
	// home is the namespace of the account, with the ConfigMap probe.
	home *cluster.Namespace
}

// newGuard makes the account, writes the kubeconfig, and returns when the account has
// its rights. remove takes it away.
func newGuard(ctx context.Context, c *cluster.Cluster, kubeconfig string) (g *guard, err error) {
	g = &guard{kubeconfig: kubeconfig}
	if g.home, err = c.NewNamespace(ctx); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, g.remove(context.WithoutCancel(ctx)))
		}
	}()
	if err := g.home.Fill(ctx, 1, func(int) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: probe}}
	}); err != nil {
		return nil, err
	}
	if err := g.render(ctx); err != nil {
		return nil, err
	}
	administrator, err := access.Load(os.Getenv("KUBECONFIG"), "")
	if err != nil {
		return nil, err
	}
	config, err := access.ClientConfig(administrator)
	if err == nil {
		g.objects, err = access.NewApplier(config, manifest.Manager)
	}
	if err != nil {
		return nil, err
	}
	if err := g.objects.Apply(ctx, g.home.Name, g.rights...); err != nil {
		return nil, err
	}
	if err := g.login(ctx, administrator); err != nil {
		return nil, err
	}
	return g, g.await(ctx, false)
}

// render renders what the chart has for the writer.
func (g *guard) render(ctx context.Context) error {
	all, err := manifest.Render(ctx, manifest.Chart{
		Dir: "deploy/chart", Release: guarded, Namespace: g.home.Name,
		Templates: []string{"serviceaccounts.yaml", "rbac.yaml", "admission-writer.yaml"}, Set: []string{"networkPolicy.enabled=false"},
	})
	for _, o := range all {
		switch {
		case !strings.HasSuffix(o.GetName(), "-writer"):
		case strings.HasPrefix(o.GetKind(), "ValidatingAdmission"):
			g.policies = append(g.policies, o)
		default:
			g.rights = append(g.rights, o)
		}
	}
	return err
}

// login writes a kubeconfig with a token. With a certificate, the API server would
// verify its chain anew for each request, and it remembers tokens.
func (g *guard) login(ctx context.Context, administrator *clientcmdapi.Config) error {
	config, err := access.Account(ctx, administrator, g.home.Name, guarded+"-writer")
	if err != nil {
		return err
	}
	if err := access.Write(config, g.kubeconfig); err != nil {
		return err
	}
	acting, err := access.ClientConfig(config)
	if err == nil {
		g.account, err = kubernetes.NewForConfig(acting)
	}
	return err
}

// begin puts the policy in force, end takes it away, and both return when that is so.
func (g *guard) begin(ctx context.Context) error {
	if err := g.objects.Apply(ctx, g.home.Name, g.policies...); err != nil {
		return err
	}
	return g.await(ctx, true)
}

func (g *guard) end(ctx context.Context) error {
	if err := manifest.Delete(ctx, g.objects, g.home.Name, g.policies); err != nil {
		return err
	}
	return g.await(ctx, false)
}

// remove takes the account and its rights away.
func (g *guard) remove(ctx context.Context) error {
	var err error
	if g.objects != nil {
		err = manifest.Delete(ctx, g.objects, g.home.Name, g.rights)
	}
	return errors.Join(err, g.home.Remove(ctx))
}

// probe is a ConfigMap without annotation, which the writer may patch by RBAC alone.
const probe = "probe"

// await waits until the account may patch the probe, or, with the policy in force, may
// not any more.
func (g *guard) await(ctx context.Context, inForce bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, fmt.Errorf("%w: the policy has no effect", errWrong))
	defer cancel()
	for {
		_, err := g.account.CoreV1().ConfigMaps(g.home.Name).Patch(ctx, probe, types.MergePatchType,
			[]byte(`{"data":{"probe":"x"}}`), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
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
