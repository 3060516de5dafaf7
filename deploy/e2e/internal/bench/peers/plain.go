package peers

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/workqueue"

	"github.com/kv8s/curl-me-that/proto/annotation"
)

// controller is the sample controller of Kubernetes for this work: an informer, a
// queue, one worker, and an update of the whole object. It stands for the public
// controllers that do it, none of which resolves as a Go module.
type controller struct {
	client kubernetes.Interface
	queue  workqueue.TypedRateLimitingInterface[*corev1.ConfigMap]
}

// plain starts one. qps is the limit of the client in requests a second; 0: that of
// client-go, less than 0: none.
func plain(qps float32) func(context.Context, string) (func() error, error) {
	return func(ctx context.Context, namespace string) (stop func() error, err error) {
		config, err := clientcmd.BuildConfigFromFlags("", os.Getenv(clientcmd.RecommendedConfigPathEnvVar))
		if err != nil {
			return nil, fmt.Errorf("read $KUBECONFIG: %w", err)
		}
		config.QPS = qps
		c := controller{queue: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[*corev1.ConfigMap]())}
		if c.client, err = kubernetes.NewForConfig(config); err != nil {
			return nil, fmt.Errorf("use the cluster: %w", err)
		}
		factory := informers.NewSharedInformerFactoryWithOptions(c.client, 0, informers.WithNamespace(namespace))
		add := func(object any) {
			if configMap, is := object.(*corev1.ConfigMap); is && configMap.Data[dataKey] == "" {
				c.queue.Add(configMap)
			}
		}
		informer := factory.Core().V1().ConfigMaps().Informer()
		if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: add}); err != nil {
			return nil, fmt.Errorf("watch ConfigMaps: %w", err)
		}
		factory.StartWithContext(ctx)
		factory.WaitForCacheSyncWithContext(ctx)
		go c.work(ctx)
		return func() error { c.queue.ShutDown(); return nil }, nil
	}
}

func (c controller) work(ctx context.Context) {
	for {
		object, shutdown := c.queue.Get()
		if shutdown {
			return
		}
		if err := c.fill(ctx, object.DeepCopy()); err != nil && ctx.Err() == nil {
			c.queue.AddRateLimited(object)
		}
		c.queue.Done(object)
	}
}

// fill makes the GET, and updates the object.
func (c controller) fill(ctx context.Context, object *corev1.ConfigMap) error {
	_, url, _ := strings.Cut(object.Annotations[annotation.DefaultKey], "=")
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	object.Data = map[string]string{dataKey: string(body)}
	_, err = c.client.CoreV1().ConfigMaps(object.Namespace).Update(ctx, object, metav1.UpdateOptions{})
	return err
}
