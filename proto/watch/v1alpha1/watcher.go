package v1alpha1

import (
	"cmp"
	"crypto/sha256"
	_ "embed" // the manifest
	"encoding/hex"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kv8s/curl-me-that/proto/annotation"
)

const (
	// WatcherLabel on a ConfigMap names its Watcher (LabelValue). That Watcher may take over a
	// ConfigMap with this label.
	WatcherLabel = "watch.x-kv8s.io/watcher"
	// AppliedAnnotation on a ConfigMap is the hash of the content that keeper last applied.
	AppliedAnnotation = "watch.x-kv8s.io/applied"
	// FieldManager is keeper's field manager.
	FieldManager = "curl-me-that-keeper"
)

// Labels and annotations for injection.
const (
	// InjectLabel on a namespace, with InjectValue, allows sidecars in its pods.
	InjectLabel = "x-kv8s.io/inject"
	// InjectValue is the value of InjectLabel.
	InjectValue = "enabled"
	// InjectAnnotation on a pod names the Watchers whose sidecars it gets, separated by commas.
	InjectAnnotation = "x-kv8s.io/inject"
	// InjectedAnnotation on a pod lists its sidecars by Watcher and generation, as in errors=3,
	// separated by commas.
	InjectedAnnotation = "x-kv8s.io/injected"
	// InjectedLabel is "true" on each pod with an injected sidecar.
	InjectedLabel = "watch.x-kv8s.io/injected"
)

// Types of conditions.
const (
	// ConditionReady: the ConfigMap holds the static data and all sources.
	ConditionReady = "Ready"
	// ConditionFresh: the last fetch of every source succeeded.
	ConditionFresh = "Fresh"
	// ConditionInjectable is present if there is a container: pods can get it as a sidecar.
	ConditionInjectable = "Injectable"
	// ConditionReconciling is present while the Watcher makes progress towards Ready.
	ConditionReconciling = "Reconciling"
	// ConditionStalled is present while only an edit helps.
	ConditionStalled = "Stalled"
)

// Reasons of conditions, except failures of a fetch.
const (
	// ReasonReady: the ConfigMap is complete.
	ReasonReady = "Ready"
	// ReasonFresh: the last fetch of every source succeeded.
	ReasonFresh = "Fresh"
	// ReasonProgressing: work is in flight.
	ReasonProgressing = "Progressing"
	// ReasonFetching: a source has not been fetched yet.
	ReasonFetching = "Fetching"
	// ReasonSuspended: fetches are suspended.
	ReasonSuspended = "Suspended"
	// ReasonTargetExists: the ConfigMap exists and does not belong to a Watcher.
	ReasonTargetExists = "TargetExists"
	// ReasonTargetOwned: the ConfigMap belongs to another Watcher.
	ReasonTargetOwned = "TargetOwned"
	// ReasonTargetImmutable: the ConfigMap is immutable.
	ReasonTargetImmutable = "TargetImmutable"
	// ReasonTargetRefused: the API server refuses the ConfigMap.
	ReasonTargetRefused = "TargetRefused"
	// ReasonTooLarge: the static data does not fit into a ConfigMap.
	ReasonTooLarge = "TooLarge"
	// ReasonInvalidSource: a source cannot be expressed as an annotation.
	ReasonInvalidSource = "InvalidSource"
	// ReasonInvalidExpression: a rule or a selection of a source cannot be evaluated.
	ReasonInvalidExpression = "InvalidExpression"
	// ReasonFetchFailed: a source fails and has never been fetched.
	ReasonFetchFailed = "FetchFailed"
	// ReasonInjectable: pods that name the Watcher get its sidecar.
	ReasonInjectable = "Injectable"
	// ReasonPoliciesMissing: the operator has not enabled sidecars.
	ReasonPoliciesMissing = "PoliciesMissing"
	// ReasonNamespaceNotEnabled: the namespace does not have InjectLabel, or is protected.
	ReasonNamespaceNotEnabled = "NamespaceNotEnabled"
	// ReasonPodSecurity: the namespace's Pod Security Standard rejects pods with the sidecar.
	ReasonPodSecurity = "PodSecurity"
)

// Reasons of Events about sidecars.
const (
	// ReasonSidecarFailing: the sidecar of a pod fails, and none failed before.
	ReasonSidecarFailing = "SidecarFailing"
	// ReasonSidecarRecovered: no sidecar fails any more.
	ReasonSidecarRecovered = "SidecarRecovered"
)

// maxLabelBytes is the maximum length of a label value.
const maxLabelBytes = 63

// ConfigMapName returns the name of a Watcher's ConfigMap.
func (w *Watcher) ConfigMapName() string {
	return cmp.Or(w.Spec.Target.Name, w.Name+"-config")
}

// LabelValue returns the value of WatcherLabel for a Watcher: its name or, if that is too long for
// a label, the start of the name and a digest.
func LabelValue(name string) string {
	if len(name) <= maxLabelBytes {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	digest := hex.EncodeToString(sum[:8])
	return name[:maxLabelBytes-len(digest)-1] + "-" + digest
}

// AnnotationsFor returns the annotations of the Watcher's ConfigMap that request its sources. The pairs are in
// the annotation key, such as x-kv8s.io/curl-me-that. Without sources there are none.
func (w *Watcher) AnnotationsFor(key string) map[string]string {
	asked := map[string]string{}
	if len(w.Spec.Sources) == 0 {
		return asked
	}
	sources := slices.Clone(w.Spec.Sources)
	slices.SortFunc(sources, func(a, b Source) int { return strings.Compare(a.Key, b.Key) })
	var pairs, digests, rules, selections, intervals []string
	if w.Spec.Interval != "" {
		intervals = append(intervals, w.Spec.Interval)
	}
	for _, s := range sources {
		pairs = append(pairs, s.Key+"="+s.URL)
		if s.SHA256 != "" {
			digests = append(digests, s.Key+"="+s.SHA256)
		}
		for _, r := range s.Expect {
			rules = append(rules, s.Key+"="+r.Rule)
		}
		if s.Select != "" {
			selections = append(selections, s.Key+"="+s.Select)
		}
		if s.Interval != "" {
			intervals = append(intervals, s.Key+"="+s.Interval)
		}
	}
	asked[key] = strings.Join(pairs, " ")
	options := map[string]string{
		annotation.SHA256Name: strings.Join(digests, " "), annotation.RefreshName: strings.Join(intervals, " "),
		annotation.ExpectName: strings.Join(rules, "\n"), annotation.SelectName: strings.Join(selections, "\n"),
		annotation.NowName: w.Now(key),
	}
	if w.Spec.Suspend {
		options[annotation.SuspendName] = strconv.FormatBool(true)
	}
	for name, value := range options {
		if value != "" {
			asked[prefix(key)+name] = value
		}
	}
	return asked
}

// Now returns the value of a Watcher's annotation curl-now, with the prefix of key. A long one is replaced by its
// digest.
func (w *Watcher) Now(key string) string {
	return annotation.NowValue(w.Annotations[prefix(key)+annotation.NowName])
}

// prefix returns the prefix of an annotation, with its slash.
func prefix(key string) string { return key[:strings.Index(key, "/")+1] }

// GroupVersion of the resource.
func GroupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: "watch.x-kv8s.io", Version: "v1alpha1"}
}

// Resource is the resource's name in API paths.
func Resource() schema.GroupVersionResource { return GroupVersion().WithResource("watchers") }

// Kind of the resource.
const Kind = "Watcher"

// AddToScheme registers the kinds of this package.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion(), &Watcher{}, &WatcherList{})
	metav1.AddToGroupVersion(s, GroupVersion())
	return nil
}

// Definition is the CustomResourceDefinition of Watchers in YAML, for programs that install it.
//
//go:embed crd/watchers.yaml
var Definition []byte
