package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"

	"github.com/kv8s/curl-me-that/proto/process/kube"
)

// inFlight is the number of concurrent requests. More only increase the latency of an API server on two cores.
const inFlight = 32

// cluster is the API server of $KUBECONFIG, without rate limits in the client.
type cluster struct {
	kubernetes.Interface
	metadata metadata.Interface
	created  []string
}

func connect() *cluster {
	kube.BridgeKlog(zerolog.Nop()) // client-go logs the errors that it returns
	config := must((&kube.Options{}).Config(self))
	return &cluster{
		Interface: must(kubernetes.NewForConfig(config)),
		metadata:  must(metadata.NewForConfig(metadata.ConfigFor(config))),
	}
}

// namespace creates a namespace and returns its name.
func (c *cluster) namespace(ctx context.Context) string {
	created := must(c.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "curl-me-that-bench-"},
	}, metav1.CreateOptions{}))
	c.created = append(c.created, created.Name)
	return created.Name
}

// create creates ConfigMaps.
func (c *cluster) create(ctx context.Context, namespace string, count int, object func(n int) *corev1.ConfigMap) {
	check(inParallel(ctx, count, func(ctx context.Context, n int) error {
		_, err := c.CoreV1().ConfigMaps(namespace).Create(ctx, object(n), metav1.CreateOptions{})
		return err
	}))
}

// list returns the metadata of all ConfigMaps in a namespace.
func (c *cluster) list(ctx context.Context, namespace string) ([]metav1.PartialObjectMetadata, error) {
	list, err := c.metadata.Resource(corev1.SchemeGroupVersion.WithResource("configmaps")).Namespace(namespace).
		List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list ConfigMaps: %w", err)
	}
	return list.Items, nil
}

// remove deletes all objects. The API server of make bench has no controller that empties namespaces.
func (c *cluster) remove(ctx context.Context) error {
	var errs []error
	for _, namespace := range c.created {
		all, err := c.list(ctx, namespace)
		errs = append(errs, err, inParallel(ctx, len(all), func(ctx context.Context, n int) error {
			return ignoreNotFound(c.CoreV1().ConfigMaps(namespace).Delete(ctx, all[n].Name, metav1.DeleteOptions{}))
		}), ignoreNotFound(c.CoreV1().Namespaces().Delete(ctx, namespace, metav1.DeleteOptions{})))
	}
	return errors.Join(errs...)
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// change is a ConfigMap that was created or updated, and the time when the watch delivered it.
type change struct {
	*metav1.PartialObjectMetadata
	at time.Time
}

// watch delivers all changes in a namespace until ctx ends. It returns after the first list.
func (c *cluster) watch(ctx context.Context, namespace string) <-chan change {
	changes := make(chan change, 4096)
	send := func(object any) {
		if meta, ok := object.(*metav1.PartialObjectMetadata); ok {
			select {
			case changes <- change{meta, time.Now()}:
			case <-ctx.Done():
			}
		}
	}
	informer := metadatainformer.NewFilteredMetadataInformer(c.metadata,
		corev1.SchemeGroupVersion.WithResource("configmaps"), namespace, 0, cache.Indexers{}, nil).Informer()
	must(informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: send, UpdateFunc: func(_, object any) { send(object) },
	}))
	go informer.Run(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		check(context.Cause(ctx))
	}
	return changes
}

// inParallel calls do for 0 to count-1, inFlight at a time, until one fails.
func inParallel(ctx context.Context, count int, do func(ctx context.Context, n int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(inFlight)
	for n := range count {
		if ctx.Err() != nil {
			break
		}
		group.Go(func() error { return do(ctx, n) })
	}
	return group.Wait()
}
