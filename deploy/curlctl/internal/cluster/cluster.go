// Package cluster reads ConfigMaps' metadata, Watchers and pods, as kubectl would.
package cluster

import (
	"context"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/dynamic"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/kv8s/curl-me-that/proto/service/kube"
	watchv1 "github.com/kv8s/curl-me-that/proto/watch/v1alpha1"
)

// Config returns how to reach the cluster.
func Config(o kube.Options) (*rest.Config, error) {
	config, err := o.UserConfig()
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	return config, nil
}

// ConfigMap reads the metadata of a ConfigMap: it needs the right to get it, and
// its data is not sent.
func ConfigMap(ctx context.Context, o kube.Options, namespace, name string) (*metav1.PartialObjectMetadata, error) {
	var object *metav1.PartialObjectMetadata
	err := using(o, func(config *rest.Config, web *http.Client) error {
		client, err := metadata.NewForConfigAndClient(config, web)
		if err != nil {
			return fmt.Errorf("use kubeconfig: %w", err)
		}
		object, err = client.Resource(corev1.SchemeGroupVersion.WithResource("configmaps")).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read ConfigMap %s/%s: %w", namespace, name, err)
	}
	return object, nil
}

// Watcher reads a Watcher: it needs the right to get it.
func Watcher(ctx context.Context, o kube.Options, namespace, name string) (*watchv1.Watcher, error) {
	w := &watchv1.Watcher{}
	err := using(o, func(config *rest.Config, web *http.Client) error {
		client, err := dynamic.NewForConfigAndClient(config, web)
		if err != nil {
			return fmt.Errorf("use kubeconfig: %w", err)
		}
		object, err := client.Resource(watchv1.Resource()).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		return runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, w)
	})
	if err != nil {
		return nil, fmt.Errorf("read Watcher %s/%s: %w", namespace, name, err)
	}
	return w, nil
}

// Watchers reads at most limit Watchers of a namespace, empty meaning all, from
// next of the call before: it needs the right to list them. With an empty next
// there are no more.
func Watchers(ctx context.Context, o kube.Options, namespace, from string, limit int64) (list []watchv1.Watcher, next string, err error) {
	all := &watchv1.WatcherList{}
	err = using(o, func(config *rest.Config, web *http.Client) error {
		client, err := dynamic.NewForConfigAndClient(config, web)
		if err != nil {
			return fmt.Errorf("use kubeconfig: %w", err)
		}
		objects, err := client.Resource(watchv1.Resource()).Namespace(namespace).List(ctx, metav1.ListOptions{Limit: limit, Continue: from})
		if err != nil {
			return err
		}
		return runtime.DefaultUnstructuredConverter.FromUnstructured(objects.UnstructuredContent(), all)
	})
	if err != nil {
		return nil, "", fmt.Errorf("list Watchers: %w", err)
	}
	return all.Items, all.Continue, nil
}

// podsPage is how many pods are read at once.
const podsPage = 500

// Pods calls visit for all pods of a namespace: it needs the right to list them.
func Pods(ctx context.Context, o kube.Options, namespace string, visit func(*corev1.Pod)) error {
	err := using(o, func(config *rest.Config, web *http.Client) error {
		client, err := corev1client.NewForConfigAndClient(config, web)
		if err != nil {
			return fmt.Errorf("use kubeconfig: %w", err)
		}
		for page := (metav1.ListOptions{Limit: podsPage}); ; {
			list, err := client.Pods(namespace).List(ctx, page)
			if err != nil {
				return err
			}
			for i := range list.Items {
				visit(&list.Items[i])
			}
			if page.Continue = list.Continue; page.Continue == "" {
				return nil
			}
		}
	})
	if err != nil {
		return fmt.Errorf("list the pods of namespace %s: %w", namespace, err)
	}
	return nil
}

// using calls read with a client, whose connections end with it.
func using(o kube.Options, read func(*rest.Config, *http.Client) error) error {
	config, err := Config(o)
	if err != nil {
		return err
	}
	web, err := rest.HTTPClientFor(config)
	if err != nil {
		return fmt.Errorf("use kubeconfig: %w", err)
	}
	defer utilnet.CloseIdleConnectionsFor(web.Transport)
	return read(config, web)
}
