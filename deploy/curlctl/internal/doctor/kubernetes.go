package doctor

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
)

// Release is an installation of the chart.
type Release struct{ Namespace, Name string }

// right is a permission that a service account needs. The chart's rbac.yaml grants it.
type right struct {
	// resource is RESOURCE.GROUP/SUBRESOURCE, with optional group and subresource.
	resource string
	verbs    []string
	// lease limits the right to the Lease of the component, in the namespace of the release.
	lease bool
}

// election is the right to elect a leader.
func election() right {
	return right{resource: "leases.coordination.k8s.io", verbs: []string{"get", "update"}, lease: true}
}

// rights lists the rights of each component. An optional component is checked only if it is installed.
var rights = []struct {
	component, roles string
	optional         bool
	rights           []right
}{
	{"watcher", "ClusterRoleBinding %[1]s-watcher or RoleBinding %[1]s-election", false, []right{
		{resource: "configmaps", verbs: []string{"list", "watch"}},
		{resource: "events", verbs: []string{"create"}},
		election(),
	}},
	{"writer", "ClusterRoleBinding %[1]s-writer", false, []right{
		{resource: "configmaps", verbs: []string{"get", "patch"}},
		{resource: "events", verbs: []string{"create", "get", "patch"}},
	}},
	{"keeper", "ClusterRoleBinding %[1]s-keeper or RoleBinding %[1]s-keeper-election", true, []right{
		{resource: "watchers.watch.x-kv8s.io", verbs: []string{"list", "watch"}},
		{resource: "watchers.watch.x-kv8s.io/status", verbs: []string{"patch"}},
		{resource: "configmaps", verbs: []string{"list", "watch", "create", "patch"}},
		{resource: "events", verbs: []string{"create"}},
		election(),
	}},
}

// Rights checks the rights of the service accounts of a release by SubjectAccessReviews, in one namespace or in
// all (empty).
func Rights(ctx context.Context, config *rest.Config, release Release, namespace string) ([]Finding, error) {
	core, noCore := corev1client.NewForConfig(config)
	authorization, noAuthorization := authorizationclient.NewForConfig(config)
	if err := cmp.Or(noCore, noAuthorization); err != nil {
		return nil, fmt.Errorf("connect to the API server: %w", err)
	}
	d := &diagnosis{}
	for _, of := range rights {
		account := release.Name + "-" + of.component
		check := "rights of " + of.component
		_, err := core.ServiceAccounts(release.Namespace).Get(ctx, account, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err) && of.optional:
			continue
		case apierrors.IsNotFound(err):
			d.add(check, Bad, "install the chart, or name its release: --kubernetes=NAMESPACE/RELEASE",
				"there is no service account %s/%s", release.Namespace, account)
			continue
		case err != nil:
			return d.findings, fmt.Errorf("get service account %s/%s: %w", release.Namespace, account, err)
		}
		missing, err := missingRights(ctx, authorization, types.NamespacedName{Namespace: release.Namespace, Name: account},
			of.rights, namespace)
		if err != nil {
			return d.findings, err
		}
		if len(missing) > 0 {
			d.add(check, Bad, "restore "+fmt.Sprintf(of.roles, release.Name)+" with helm upgrade or kubectl apply",
				"service account %s/%s may not %s", release.Namespace, account, strings.Join(missing, ", "))
			continue
		}
		d.add(check, OK, "", "service account %s/%s has its rights", release.Namespace, account)
	}
	return d.findings, d.resolvingProxy(ctx, core, release)
}

// resolvingProxy adds a finding if an egress proxy resolves and checks addresses for the fetchers.
func (d *diagnosis) resolvingProxy(ctx context.Context, core corev1client.CoreV1Interface, release Release) error {
	pods, err := core.Pods(release.Namespace).List(ctx, metav1.ListOptions{
		LabelSelector: "app.kubernetes.io/component=fetcher,app.kubernetes.io/instance=" + release.Name,
	})
	if err != nil {
		return fmt.Errorf("list the pods of fetchers in namespace %s: %w", release.Namespace, err)
	}
	for _, pod := range pods.Items {
		for _, container := range pod.Spec.Containers {
			if slices.Contains(container.Args, "--proxy-resolves") {
				d.add("egress proxy", OK, "",
					"names are checked by fetchers, and addresses by the egress proxy: let it deny private addresses")
				return nil
			}
		}
	}
	return nil
}

// missingRights returns the rights that an account lacks, such as "list configmaps".
func missingRights(ctx context.Context, client authorizationclient.AuthorizationV1Interface,
	account types.NamespacedName, all []right, namespace string,
) (missing []string, err error) {
	for _, r := range all {
		kind, subresource, _ := strings.Cut(r.resource, "/")
		resource := schema.ParseGroupResource(kind)
		for _, verb := range r.verbs {
			attributes := &authorizationv1.ResourceAttributes{
				Verb: verb, Group: resource.Group, Resource: resource.Resource, Subresource: subresource, Namespace: namespace,
			}
			if r.lease {
				attributes.Namespace, attributes.Name = account.Namespace, account.Name
			}
			review, err := client.SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
				Spec: authorizationv1.SubjectAccessReviewSpec{
					User:               "system:serviceaccount:" + account.Namespace + ":" + account.Name,
					Groups:             []string{"system:serviceaccounts", "system:authenticated"},
					ResourceAttributes: attributes,
				},
			}, metav1.CreateOptions{})
			if err != nil {
				return nil, fmt.Errorf("review the rights of %s: %w", account, err)
			}
			if !review.Status.Allowed {
				missing = append(missing, verb+" "+path.Join(resource.Resource, subresource))
			}
		}
	}
	return missing, nil
}
