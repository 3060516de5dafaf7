// Package doctor finds out why the pipeline does not work, and says how to fix it. It checks NATS, and the rights of
// the service accounts in Kubernetes.
package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/kv8s/curl-me-that/deploy/curlctl/broker"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/cluster"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/keys"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// Finding is the result of a check.
type Finding struct {
	Check  string `json:"check"`
	State  string `json:"state"`
	Detail string `json:"detail"`
	Fix    string `json:"fix,omitempty"`
}

// Row returns the row of the finding.
func (f Finding) Row() printer.Row {
	return printer.Row{
		Name: "check/" + f.Check, Object: f,
		Cells: printer.Cells("CHECK", f.Check, "STATE", f.State, "DETAIL", f.Detail, "FIX", f.Fix),
	}
}

// States of findings.
const (
	OK      = "ok"
	Warning = "warning"
	Bad     = "bad"
	Unknown = "unknown"
)

// Examine checks connection, permissions, clock, streams, consumers, timers and wants. The error is the cause
// of ctx, if it ended early.
func Examine(ctx context.Context, conn *broker.Connection, now func() time.Time) ([]Finding, error) {
	d := &diagnosis{Connection: conn, now: now}
	for _, examine := range []func(context.Context){
		d.server, d.permissions, d.streams, d.replicas, d.consumers, d.requests,
	} {
		examine(ctx)
		if err := context.Cause(ctx); err != nil {
			return d.findings, err
		}
	}
	return d.findings, nil
}

type diagnosis struct {
	*broker.Connection

	now      func() time.Time
	findings []Finding
}

func (d *diagnosis) add(check, state, fix, format string, args ...any) {
	d.findings = append(d.findings, Finding{Check: check, State: state, Fix: fix, Detail: fmt.Sprintf(format, args...)})
}

const (
	// slowLink is the maximum round trip to the server without a warning.
	slowLink = 250 * time.Millisecond
	// wrongClock is the maximum clock difference to the server without a warning.
	wrongClock = 2 * time.Second
)

// server checks the connection, the version and the clock.
func (d *diagnosis) server(ctx context.Context) {
	trip, err := d.Conn.RTT()
	switch {
	case err != nil:
		d.add("connection", Bad, "check the network and the server", "%s does not respond: %s", d.Where, err)
		return
	case trip > slowLink:
		d.add("connection", Warning, "run curlctl closer to the server", "%s takes %s to respond", d.Where,
			trip.Round(time.Millisecond))
	default:
		d.add("connection", OK, "", "%s responds within %s", d.Where, slowLink)
	}
	if flaw := pipeline.ServerFlaw(d.Conn.ConnectedServerVersion()); flaw != "" {
		d.add("version", Bad, "upgrade all servers, one after the other", "%s", flaw)
	} else {
		d.add("version", OK, "", "NATS is %s or newer", pipeline.MinServer)
	}
	before := time.Now()
	stream, err := d.Client.Stream(ctx, pipeline.Requests)
	if err != nil {
		return // reported by streams
	}
	off := stream.CachedInfo().TimeStamp.Sub(before.Add(time.Since(before) / 2))
	if off.Abs() > wrongClock {
		d.add("clock", Warning, "synchronize the clocks (NTP), because timers follow the server's clock",
			"the server's clock differs by %s from this one", off.Round(time.Millisecond))
		return
	}
	d.add("clock", OK, "", "the server's clock agrees with this one")
}

// permissions compares the permissions of this user with those of the identities.
func (d *diagnosis) permissions(ctx context.Context) {
	user, err := d.User(ctx)
	if err != nil {
		d.add("permissions", Unknown, "allow this user to publish $SYS.REQ.USER.INFO", "%s", err)
		return
	}
	var may []string
	for _, identity := range broker.Identities() {
		missing := identity.Missing(user, d.Client.APIPrefix())
		if len(missing) == 0 {
			may = append(may, identity.Name)
			continue
		}
		if identity.Name == broker.Viewer {
			d.add("permissions", Bad, "grant the permissions that deploy/nats/accounts.conf has for "+broker.Viewer,
				"user %s may not use %s", user.Name, strings.Join(missing, ", "))
			return
		}
	}
	d.add("permissions", OK, "", "user %s has the permissions of %s", user.Name, strings.Join(may, ", "))
}

// streams compares streams and consumers with the configuration of this version.
func (d *diagnosis) streams(ctx context.Context) {
	differ, err := pipeline.Differences(ctx, d.Client.JetStream(), pipeline.Topology{})
	if err != nil {
		d.add("streams", Unknown, "", "%s", err)
		return
	}
	for _, difference := range differ {
		d.add("streams", Bad, "run `curlctl setup`", "%s", difference)
	}
	if len(differ) == 0 {
		d.add("streams", OK, "", "streams and consumers are up to date")
	}
}

func (d *diagnosis) replicas(ctx context.Context) {
	var single []string
	for _, name := range []string{pipeline.Requests, pipeline.Results, pipeline.DeadLetters} {
		stream, err := d.Client.Stream(ctx, name)
		if err != nil {
			continue
		}
		info := stream.CachedInfo()
		if info.Config.Replicas == 1 {
			single = append(single, name)
			continue
		}
		state := OK
		for _, peer := range info.Cluster.Replicas {
			if peer.Offline || !peer.Current {
				state = Bad
				d.add("replicas", state, "check that server", "the replica of %s on %s is behind or offline", name, peer.Name)
			}
		}
		if state == OK {
			d.add("replicas", OK, "", "%s has %d replicas", name, info.Config.Replicas)
		}
	}
	switch clustered := d.Conn.ConnectedClusterName() != ""; {
	case len(single) > 0 && !clustered:
		d.add("replicas", OK, "", "one replica each, because NATS has one server")
	case len(single) > 0:
		d.add("replicas", Warning, "on a cluster, run `curlctl setup --replicas 3`",
			"one replica, lost with its server: %s", strings.Join(single, ", "))
	}
}

func (d *diagnosis) consumers(ctx context.Context) {
	var o keys.Overview
	err := o.ReadConsumers(ctx, d.Client)
	for _, c := range o.Consumers {
		check, waiting := "consumer "+c.Name, printer.Plural(c.Backlog, "message")
		switch {
		case o.Paused && c.Name == pipeline.FetcherConsumer:
			d.add(check, Warning, "run `curlctl resume` to resume fetching", "paused, %s waiting", waiting)
		case c.Readers == 0 && c.InFlight == 0:
			d.add(check, Bad, "start a "+c.Name+", or check its log", "no %s reads from it, %s waiting", c.Name, waiting)
		case c.InFlight >= c.MaxInFlight:
			d.add(check, Bad, "check the log of the "+c.Name, "%s in flight, which is the limit", printer.Grouped(c.InFlight))
		default:
			d.add(check, OK, "", "%s waiting, %s in flight", waiting, printer.Grouped(c.InFlight))
		}
	}
	if err != nil && !errors.Is(err, broker.ErrNoConsumer) && !errors.Is(err, jetstream.ErrStreamNotFound) {
		d.add("consumers", Unknown, "", "%s", err) // others are reported by streams
	}
}

// requests looks for overdue timers, and for unreadable messages, which the services ignore.
func (d *diagnosis) requests(ctx context.Context) {
	client := d.Client.Counting()
	wanted, timers, err := keys.Reader{Client: client, Now: d.now()}.Read(ctx)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return // reported by streams
	}
	if err != nil {
		d.add("wants", Unknown, "", "%s", err)
		return
	}
	var counts keys.TimerCounts
	for _, t := range timers {
		counts.Add(t.At, d.now())
	}
	if counts.Overdue > 0 {
		d.add("timers", Bad, "restart the leader of CURL_REQUESTS (`nats stream cluster step-down CURL_REQUESTS`), then "+
			"replace the timers with `curlctl refetch --all`",
			"%s of %d overdue", printer.Plural(counts.Overdue, "timer"), counts.Pending)
	} else {
		d.add("timers", OK, "", "%s, none overdue", printer.Plural(counts.Pending, "timer"))
	}
	if n, _ := client.Unread.Count(); n > 0 {
		d.add("wants", Bad, "find out which other client publishes to CURL_REQUESTS, then restart the watcher, which "+
			"replaces the wants, and replace the timers with `curlctl refetch --all`",
			"%s unreadable", printer.Plural(n, "message"))
		return
	}
	d.add("wants", OK, "", "%s", printer.Plural(len(wanted), "key"))
}

// Release is an installation of the chart.
type Release struct{ Namespace, Name string }

// rights lists what each service account needs, as VERB RESOURCE.GROUP/SUBRESOURCE. The chart's rbac.yaml grants it.
// A component that elects a leader also needs its Lease. An optional one is checked only if it is installed.
var rights = []struct {
	component, roles   string
	optional, election bool
	rights             []string
}{
	{"watcher", "ClusterRoleBinding %[1]s-watcher or RoleBinding %[1]s-election", false, true, []string{
		"list configmaps", "watch configmaps", "create events",
	}},
	{"writer", "ClusterRoleBinding %[1]s-writer", false, false, []string{
		"get configmaps", "patch configmaps", "create events", "get events", "patch events",
	}},
	{"keeper", "ClusterRoleBinding %[1]s-keeper or RoleBinding %[1]s-keeper-election", true, true, []string{
		"list watchers.watch.x-kv8s.io", "watch watchers.watch.x-kv8s.io", "patch watchers.watch.x-kv8s.io/status",
		"list configmaps", "watch configmaps", "create configmaps", "patch configmaps", "create events",
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
			return d.findings, &cluster.Error{
				Operation: "get service account " + release.Namespace + "/" + account, Err: err,
			}
		}
		if of.election {
			of.rights = append(slices.Clone(of.rights), "get "+lease, "update "+lease)
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
		return &cluster.Error{Operation: "list the pods of fetchers in namespace " + release.Namespace, Err: err}
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

// lease is the resource of leader elections. The Lease of a component has the name of its account.
const lease = "leases.coordination.k8s.io"

// missingRights returns the rights that an account lacks, such as "list configmaps".
func missingRights(ctx context.Context, client authorizationclient.AuthorizationV1Interface,
	account types.NamespacedName, rights []string, namespace string,
) (missing []string, err error) {
	for _, right := range rights {
		verb, kind, _ := strings.Cut(right, " ")
		kind, subresource, _ := strings.Cut(kind, "/")
		resource := schema.ParseGroupResource(kind)
		attributes := &authorizationv1.ResourceAttributes{
			Verb: verb, Group: resource.Group, Resource: resource.Resource, Subresource: subresource, Namespace: namespace,
		}
		if kind == lease {
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
			return nil, &cluster.Error{Operation: "review the rights of " + account.String(), Err: err}
		}
		if !review.Status.Allowed {
			missing = append(missing, verb+" "+path.Join(resource.Resource, subresource))
		}
	}
	return missing, nil
}
