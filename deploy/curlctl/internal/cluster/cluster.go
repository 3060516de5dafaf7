// Package cluster reads ConfigMap metadata, Watchers and pods, with the rights of the user.
package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/dynamic"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/keys"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/podusage"
	"github.com/kv8s/curl-me-that/proto/process/kube"
	watchv1 "github.com/kv8s/curl-me-that/proto/watch/v1alpha1"
)

// Error of the API server, or of the connection to it.
type Error struct {
	// Operation such as "get ConfigMap team-a/rules".
	Operation string
	Err       error
}

// Error implements error.
func (e *Error) Error() string {
	if apierrors.IsForbidden(e.Err) || apierrors.IsUnauthorized(e.Err) {
		return "this Kubernetes user may not " + e.Operation
	}
	return e.Operation + ": " + e.Err.Error()
}

// Unwrap returns the error of the API server.
func (e *Error) Unwrap() error { return e.Err }

// Config returns the configuration of a client.
func Config(o kube.Options) (*rest.Config, error) {
	config, err := o.UserConfig()
	switch file := cmp.Or(o.Kubeconfig, os.Getenv(clientcmd.RecommendedConfigPathEnvVar)); {
	case err == nil:
		return config, nil
	case file == "":
		return nil, errors.New("there is no kubeconfig; set --kubeconfig or KUBECONFIG")
	case clientcmd.IsEmptyConfig(err):
		if _, err := os.Stat(file); err != nil {
			return nil, fmt.Errorf("read kubeconfig %s: %w", file, err)
		}
		return nil, fmt.Errorf("kubeconfig %s names no cluster", file)
	default:
		return nil, fmt.Errorf("read kubeconfig %s: %w", file, err)
	}
}

// Lookup reads the metadata of the ConfigMap with a name, and the Watcher that owns it. If
// there is no such ConfigMap, it reads the Watcher with that name and its ConfigMap. Either
// may be nil. Errors are *Error.
func Lookup(
	ctx context.Context, o kube.Options, namespace, name string,
) (*metav1.PartialObjectMetadata, *watchv1.Watcher, error) {
	object, err := configMap(ctx, o, namespace, name)
	if err != nil {
		return nil, nil, err
	}
	if object == nil {
		w, err := watcher(ctx, o, namespace, name)
		if err != nil || w == nil {
			return nil, nil, err
		}
		object, err = configMap(ctx, o, namespace, w.ConfigMapName())
		return object, w, err
	}
	owner := object.Labels[watchv1.WatcherLabel]
	if controller := metav1.GetControllerOf(object); controller != nil && controller.Kind == watchv1.Kind {
		owner = controller.Name
	}
	if owner == "" {
		return object, nil, nil
	}
	w, err := watcher(ctx, o, namespace, owner)
	if w != nil && w.ConfigMapName() != name {
		w = nil // anybody may set the label
	}
	return object, w, err
}

// configMap reads the metadata of a ConfigMap; nil: there is none. Its data is not sent.
func configMap(ctx context.Context, o kube.Options, namespace, name string) (*metav1.PartialObjectMetadata, error) {
	var object *metav1.PartialObjectMetadata
	err := using(o, "get ConfigMap "+namespace+"/"+name, func(config *rest.Config, web *http.Client) error {
		client, err := metadata.NewForConfigAndClient(config, web)
		if err != nil {
			return err
		}
		resource := corev1.SchemeGroupVersion.WithResource("configmaps")
		object, err = client.Resource(resource).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			object, err = nil, nil
		}
		return err
	})
	return object, err
}

// objectsPage is the number of ConfigMaps per request.
const objectsPage = 500

// Objects reads the metadata of the ConfigMaps of a namespace and name; empty: all. Errors are *Error.
func Objects(ctx context.Context, o kube.Options, namespace, name string) (keys.Objects, error) {
	objects := keys.Objects{}
	err := using(o, "list ConfigMaps", func(config *rest.Config, web *http.Client) error {
		client, err := metadata.NewForConfigAndClient(config, web)
		if err != nil {
			return err
		}
		page := metav1.ListOptions{Limit: objectsPage}
		if name != "" {
			page.FieldSelector = "metadata.name=" + name
		}
		for {
			list, err := client.Resource(corev1.SchemeGroupVersion.WithResource("configmaps")).Namespace(namespace).List(ctx,
				page)
			if err != nil {
				return err
			}
			for i := range list.Items {
				objects.Add(&list.Items[i].ObjectMeta)
			}
			if page.Continue = list.Continue; page.Continue == "" {
				return nil
			}
		}
	})
	if err != nil {
		return nil, err
	}
	return objects, nil
}

// watcher reads a Watcher. It returns nil if there is none, the cluster serves none, or the
// user may not read it: the rights on the ConfigMap are enough.
func watcher(ctx context.Context, o kube.Options, namespace, name string) (*watchv1.Watcher, error) {
	var w *watchv1.Watcher
	err := using(o, "get Watcher "+namespace+"/"+name, func(config *rest.Config, web *http.Client) error {
		client, err := dynamic.NewForConfigAndClient(config, web)
		if err != nil {
			return err
		}
		object, err := client.Resource(watchv1.Resource()).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err), apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
			return nil
		case err != nil:
			return err
		}
		w = &watchv1.Watcher{}
		return runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, w)
	})
	return w, err
}

// Watchers lists at most limit Watchers of a namespace, empty meaning all, from the token
// next of the previous call. With an empty next there are no more.
func Watchers(
	ctx context.Context, o kube.Options, namespace, from string, limit int64,
) (list []watchv1.Watcher, next string, err error) {
	all := &watchv1.WatcherList{}
	err = using(o, "list Watchers", func(config *rest.Config, web *http.Client) error {
		client, err := dynamic.NewForConfigAndClient(config, web)
		if err != nil {
			return err
		}
		page := metav1.ListOptions{Limit: limit, Continue: from}
		objects, err := client.Resource(watchv1.Resource()).Namespace(namespace).List(ctx, page)
		if err != nil {
			return err
		}
		return runtime.DefaultUnstructuredConverter.FromUnstructured(objects.UnstructuredContent(), all)
	})
	if err != nil {
		return nil, "", err
	}
	return all.Items, all.Continue, nil
}

// podsPage is the number of pods per request.
const podsPage = 500

// pods calls visit for all pods of a namespace.
func pods(ctx context.Context, o kube.Options, namespace string, visit func(*corev1.Pod)) error {
	return using(o, "list pods of namespace "+namespace, func(config *rest.Config, web *http.Client) error {
		client, err := corev1client.NewForConfigAndClient(config, web)
		if err != nil {
			return err
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
}

// using calls do with a client, and closes its connections.
func using(o kube.Options, operation string, do func(*rest.Config, *http.Client) error) error {
	config, err := Config(o)
	var web *http.Client
	if err == nil {
		web, err = rest.HTTPClientFor(config)
	}
	if err == nil {
		defer utilnet.CloseIdleConnectionsFor(web.Transport)
		err = do(config, web)
	}
	if err != nil {
		return &Error{Operation: operation, Err: err}
	}
	return nil
}

// Usage returns the containers that use a ConfigMap, sorted by pod. It leaves out terminated
// ones unless all is set.
func Usage( //nolint:revive // six independent inputs
	ctx context.Context, o kube.Options, namespace string, cm podusage.ConfigMap, all bool, now time.Time,
) ([]podusage.Usage, error) {
	var found []podusage.Usage
	err := pods(ctx, o, namespace, func(pod *corev1.Pod) {
		for _, c := range podusage.In(pod, cm, now) {
			if all || c.Newest != podusage.Ended {
				found = append(found, c)
			}
		}
	})
	slices.SortStableFunc(found, func(a, b podusage.Usage) int { return strings.Compare(a.Pod, b.Pod) })
	return found, err
}

// Secrets returns a client for the Secrets of a namespace, and a function that closes its
// connections.
func Secrets(o kube.Options, namespace string) (client corev1client.SecretInterface, done func(), err error) {
	config, err := Config(o)
	if err != nil {
		return nil, nil, err
	}
	config.QPS = -1
	web, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, nil, fmt.Errorf("use kubeconfig: %w", err)
	}
	core, err := corev1client.NewForConfigAndClient(config, web)
	if err != nil {
		return nil, nil, fmt.Errorf("use kubeconfig: %w", err)
	}
	return core.Secrets(namespace), func() { utilnet.CloseIdleConnectionsFor(web.Transport) }, nil
}
