package cluster

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// page is how many objects are listed at a time.
const page = 1000

// Namespace is one of the benchmark's own.
type Namespace struct {
	// Name is made up by the API server.
	Name    string
	cluster *Cluster
}

// NewNamespace creates a namespace with a name of its own.
func (c *Cluster) NewNamespace(ctx context.Context) (*Namespace, error) {
	created, err := c.Kubernetes.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "curl-me-that-bench-"},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("create a namespace: %w", err)
	}
	return &Namespace{Name: created.Name, cluster: c}, nil
}

// Fill creates count ConfigMaps, several at a time.
func (n *Namespace) Fill(ctx context.Context, count int, object func(i int) *corev1.ConfigMap) error {
	return InParallel(ctx, count, func(ctx context.Context, i int) error {
		_, err := n.cluster.Kubernetes.CoreV1().ConfigMaps(n.Name).Create(ctx, object(i), metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("create a ConfigMap: %w", err)
		}
		return nil
	})
}

// ConfigMaps returns all ConfigMaps of the namespace, and the resource version
// from which a watch sees what comes later.
func (n *Namespace) ConfigMaps(ctx context.Context) (all []corev1.ConfigMap, version string, err error) {
	for options := (metav1.ListOptions{Limit: page}); ; {
		list, err := n.cluster.Kubernetes.CoreV1().ConfigMaps(n.Name).List(ctx, options)
		if err != nil {
			return nil, "", fmt.Errorf("list ConfigMaps: %w", err)
		}
		all = append(all, list.Items...)
		if list.Continue == "" {
			return all, list.ResourceVersion, nil
		}
		options.Continue = list.Continue
	}
}

// Remove deletes the ConfigMaps and then the namespace. The former is not left
// to the latter, since a bare API server has no controller that would do it.
func (n *Namespace) Remove(ctx context.Context) error {
	names, err := n.names(ctx)
	if err != nil {
		return err
	}
	client := n.cluster.Kubernetes.CoreV1()
	err = InParallel(ctx, len(names), func(ctx context.Context, i int) error {
		return ignoreNotFound(client.ConfigMaps(n.Name).Delete(ctx, names[i], metav1.DeleteOptions{}))
	})
	err = errors.Join(err, ignoreNotFound(client.Namespaces().Delete(ctx, n.Name, metav1.DeleteOptions{})))
	if err != nil {
		return fmt.Errorf("remove namespace %s: %w", n.Name, err)
	}
	return nil
}

func (n *Namespace) names(ctx context.Context) ([]string, error) {
	var names []string
	resource := n.cluster.Metadata.Resource(corev1.SchemeGroupVersion.WithResource("configmaps")).Namespace(n.Name)
	for options := (metav1.ListOptions{Limit: page}); ; {
		list, err := resource.List(ctx, options)
		if err != nil {
			return nil, fmt.Errorf("list ConfigMaps: %w", err)
		}
		for i := range list.Items {
			names = append(names, list.Items[i].Name)
		}
		if list.Continue == "" {
			return names, nil
		}
		options.Continue = list.Continue
	}
}

// InParallel calls do for 0 to count-1, InFlight at a time, until one fails.
func InParallel(ctx context.Context, count int, do func(ctx context.Context, i int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(InFlight)
	for i := range count {
		if ctx.Err() != nil {
			break
		}
		group.Go(func() error { return do(ctx, i) })
	}
	return group.Wait()
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
