package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Helm keeps the definition when a release of the chart is removed, because all Watchers would be deleted with it.
// +kubebuilder:metadata:annotations="helm.sh/resource-policy=keep"
// +kubebuilder:metadata:labels={"app.kubernetes.io/name=curl-me-that","app.kubernetes.io/part-of=curl-me-that"}

// Watcher watches URLs and owns a ConfigMap with their bodies.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=wat
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Fresh",type=string,JSONPath=`.status.conditions[?(@.type=="Fresh")].status`
// +kubebuilder:printcolumn:name="Fetched",type=string,JSONPath=`.status.fetched`
// +kubebuilder:printcolumn:name="ConfigMap",type=string,JSONPath=`.status.configMapName`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Changed",type=date,priority=1,JSONPath=`.status.changedAt`
// +kubebuilder:printcolumn:name="Pods",type=integer,priority=1,JSONPath=`.status.pods.injected`
// +kubebuilder:validation:XValidation:rule="has(self.spec.target) && has(self.spec.target.name) || size(self.metadata.name) <= 246",message="the name is longer than 246 characters, which leaves no room for -config; name the ConfigMap in spec.target.name"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.container) || size(self.metadata.name) <= 63",message="the name of a Watcher with a container has at most 63 characters"
type Watcher struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Desired state.
	// +required
	Spec WatcherSpec `json:"spec"`
	// Observed state.
	// +optional
	Status WatcherStatus `json:"status,omitzero"`
}

// WatcherList is a list of Watchers.
//
// +kubebuilder:object:root=true
type WatcherList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Watcher `json:"items"`
}

// WatcherSpec is the desired state of a Watcher.
// +kubebuilder:validation:XValidation:rule="has(self.configData) || has(self.configBinaryData) || has(self.sources) || has(self.container)",message="a Watcher needs at least one of configData, configBinaryData, sources and container"
// +kubebuilder:validation:XValidation:rule="!has(self.configData) || !has(self.configBinaryData) || self.configData.all(k, !(k in self.configBinaryData))",message="a key is in both configData and configBinaryData; remove it from one of them"
// +kubebuilder:validation:XValidation:rule="!has(self.sources) || !has(self.configData) || self.sources.all(s, !(s.key in self.configData))",message="a key is in both sources and configData; remove it from one of them"
// +kubebuilder:validation:XValidation:rule="!has(self.sources) || !has(self.configBinaryData) || self.sources.all(s, !(s.key in self.configBinaryData))",message="a key is in both sources and configBinaryData; remove it from one of them"
// +kubebuilder:validation:XValidation:rule="(has(self.target) && has(self.target.name) ? self.target.name : '.') == (has(oldSelf.target) && has(oldSelf.target.name) ? oldSelf.target.name : '.')",message="target.name cannot be changed, added or removed; create another Watcher"
// +kubebuilder:validation:XValidation:rule="!has(self.volume) || has(self.container)",message="volume needs container"
// +kubebuilder:validation:XValidation:rule="!has(self.imagePullSecrets) || has(self.container)",message="imagePullSecrets needs container"
type WatcherSpec struct {
	// Suspends fetches and repairs while true. Static data and sidecar stay.
	// +optional
	Suspend bool `json:"suspend,omitempty"`
	// Refresh interval of all sources, such as 10m; without it, they are fetched once.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+([.][0-9]+)?(ms|s|m|h))+$') && duration(self) >= duration('10s') && duration(self) <= duration('8760h')",message="interval is a duration such as 10m or 1h30m, from 10s to 8760h"
	Interval string `json:"interval,omitempty"`
	// The ConfigMap of this Watcher.
	// +optional
	Target Target `json:"target,omitzero"`
	// Static text for the ConfigMap.
	// +optional
	// +kubebuilder:validation:MaxProperties=256
	// +kubebuilder:validation:XValidation:rule="self.all(k, k.matches('^[-._a-zA-Z0-9]{1,253}$') && k != '.' && !k.startsWith('..'))",message="a key consists of 1 to 253 letters, digits, -, _ and ., is not ., and does not begin with .."
	ConfigData map[string]string `json:"configData,omitempty"`
	// Static binary data for the ConfigMap, in base64.
	// +optional
	// +kubebuilder:validation:MaxProperties=256
	// +kubebuilder:validation:XValidation:rule="self.all(k, k.matches('^[-._a-zA-Z0-9]{1,253}$') && k != '.' && !k.startsWith('..'))",message="a key consists of 1 to 253 letters, digits, -, _ and ., is not ., and does not begin with .."
	ConfigBinaryData map[string][]byte `json:"configBinaryData,omitempty"`
	// URLs whose bodies go into the ConfigMap.
	// +optional
	// +listType=map
	// +listMapKey=key
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=128
	Sources []Source `json:"sources,omitempty"`
	// The sidecar for pods that name this Watcher in the annotation x-kv8s.io/inject: a container
	// of core/v1. Only users who may create pods can set, change or remove it, its volume and its
	// Secret.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:XValidation:rule="self.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$') && size(self.name) <= 63",message="the name of a container has at most 63 characters: a-z, 0-9 and -, with no - at either end"
	// +kubebuilder:validation:XValidation:rule="!has(self.restartPolicy) || self.restartPolicy == 'Always'",message="the restartPolicy of a sidecar is Always; leave it out"
	// +kubebuilder:validation:XValidation:rule="has(self.image) && size(self.image) > 0",message="a container needs an image"
	Container *corev1.Container `json:"container,omitempty"`
	// A volume for the pod, a volume of core/v1. A pod with a volume of that name keeps its own.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:XValidation:rule="self.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$') && size(self.name) <= 63",message="the name of a volume has at most 63 characters: a-z, 0-9 and -, with no - at either end"
	Volume *corev1.Volume `json:"volume,omitempty"`
	// An image pull Secret for the sidecar.
	// +optional
	// +kubebuilder:validation:XValidation:rule="has(self.name) && size(self.name) > 0",message="imagePullSecrets needs the name of a Secret"
	ImagePullSecrets *corev1.LocalObjectReference `json:"imagePullSecrets,omitempty"`
}

// Target describes the ConfigMap of a Watcher.
type Target struct {
	// Name of the ConfigMap; default: the name of the Watcher, followed by -config. It cannot be
	// changed.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="the name of a ConfigMap has a-z, 0-9, - and ., with no - or . at either end"
	Name string `json:"name,omitempty"`
	// What happens to the ConfigMap when the Watcher is deleted. Delete removes it, Retain leaves
	// it as an ordinary annotated ConfigMap.
	// +optional
	// +kubebuilder:default=Delete
	DeletionPolicy DeletionPolicy `json:"deletionPolicy,omitempty"`
}

// DeletionPolicy tells what happens to the ConfigMap when the Watcher is deleted.
// +kubebuilder:validation:Enum=Delete;Retain
type DeletionPolicy string

// Deletion policies.
const (
	// Delete lets the ConfigMap be garbage-collected with the Watcher.
	Delete DeletionPolicy = "Delete"
	// Retain keeps the ConfigMap.
	Retain DeletionPolicy = "Retain"
)

// Source is a URL and the key for its body.
type Source struct {
	// Key of the ConfigMap.
	// +required
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[-._a-zA-Z0-9]{1,253}$') && self != '.' && !self.startsWith('..')",message="a key consists of 1 to 253 letters, digits, -, _ and ., is not ., and does not begin with .."
	Key string `json:"key"`
	// URL to fetch with GET, with https:// if it has no scheme.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="self.matches('^[!-~]*$')",message="a url contains only printable ASCII and no white space; escape other characters, as in %20"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^[A-Za-z][-A-Za-z0-9+.]*://') || self.matches('^[Hh][Tt][Tt][Pp][Ss]?://')",message="the scheme of a url is http or https"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^([A-Za-z][-A-Za-z0-9+.]*://)?[^/?#]*@')",message="a url must not contain a user name or a password; ask the operator for credentials for that host"
	URL string `json:"url"`
	// SHA256 that the body must match, 64 lower-case hexadecimal digits; if absent, any body is
	// accepted.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="size(self) == 0 || self.matches('^[0-9a-f]{64}$')",message="sha256 has 64 lower-case hexadecimal digits"
	SHA256 string `json:"sha256,omitempty"`
	// Rules that the body must meet, in CEL; another body leaves the last good value.
	// +optional
	// +kubebuilder:validation:MaxItems=8
	Expect []Rule `json:"expect,omitempty"`
	// CEL expression that gives the value from the body, such as json.data.limits; if absent, the
	// value is the body.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^[^\n\r]*$`
	Select string `json:"select,omitempty"`
	// Refresh interval of this source; default: the interval of the Watcher.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+([.][0-9]+)?(ms|s|m|h))+$') && duration(self) >= duration('10s') && duration(self) <= duration('8760h')",message="interval is a duration such as 10m or 1h30m, from 10s to 8760h"
	Interval string `json:"interval,omitempty"`
}

// Rule is a check of a body.
type Rule struct {
	// CEL expression that must be true, such as size(json.rules) > 0.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^[^\n\r]*$`
	Rule string `json:"rule"`
	// Sentence for the conditions if a body does not meet the rule.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Message string `json:"message,omitempty"`
}

// WatcherStatus is the observed state of a Watcher.
type WatcherStatus struct {
	// Generation of the Watcher that this status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Name of the ConfigMap, also before it exists.
	// +optional
	ConfigMapName string `json:"configMapName,omitempty"`
	// Conditions: Ready and Fresh, Injectable if there is a container, and Reconciling and Stalled
	// while they are true.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Number of sources with a body in the ConfigMap, such as 2/3; - without sources.
	// +optional
	Fetched string `json:"fetched,omitempty"`
	// State of each source.
	// +optional
	// +listType=map
	// +listMapKey=key
	Sources []SourceStatus `json:"sources,omitempty"`
	// Digest over all content: static data and the bodies of the sources.
	// +optional
	ContentSHA256 string `json:"contentSHA256,omitempty"`
	// Time of the last change of that digest.
	// +optional
	ChangedAt *metav1.Time `json:"changedAt,omitempty"`
	// Value of the annotation x-kv8s.io/curl-now that was last copied to the ConfigMap.
	// +optional
	LastHandledReconcileAt string `json:"lastHandledReconcileAt,omitempty"`
	// Numbers of pods with the sidecar.
	// +optional
	Pods *PodsStatus `json:"pods,omitempty"`
}

// SourceState is the state of a source.
// +kubebuilder:validation:Enum=Pending;Good;Failing
type SourceState string

// States of a source.
const (
	// Pending: it has not been fetched yet.
	Pending SourceState = "Pending"
	// Good: the ConfigMap has its body.
	Good SourceState = "Good"
	// Failing: the last attempt failed. The ConfigMap may have an earlier body.
	Failing SourceState = "Failing"
)

// SourceStatus is the state of one source. It contains neither the URL, which is in the spec, nor
// any text from a server.
type SourceStatus struct {
	// Key of the source.
	Key string `json:"key"`
	// State: Pending, Good or Failing.
	State SourceState `json:"state"`
	// SHA256 of the body in the ConfigMap, absent without a body.
	// +optional
	SHA256 string `json:"sha256,omitempty"`
	// Size of the body in bytes.
	// +optional
	Size int64 `json:"size,omitempty"`
	// Time of the last change of the body.
	// +optional
	FetchedAt *metav1.Time `json:"fetchedAt,omitempty"`
	// Reason of the failure, as in Events.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Time of the first failed attempt in an unbroken row.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
	// Number of attempts in that row at the time of the report.
	// +optional
	Attempts int64 `json:"attempts,omitempty"`
	// There is no attempt before the next interval or edit.
	// +optional
	GaveUp bool `json:"gaveUp,omitempty"`
	// HTTP status of the last response, absent without one.
	// +optional
	HTTPStatus int32 `json:"httpStatus,omitempty"`
	// Description of the failure, as in Events.
	// +optional
	Message string `json:"message,omitempty"`
	// Time of the next attempt as planned at the time of the report. If it has passed, later attempts
	// had the same outcome.
	// +optional
	NextTry *metav1.Time `json:"nextTry,omitempty"`
}

// PodsStatus counts pods with the sidecar.
type PodsStatus struct {
	// Pods with the sidecar.
	Injected int64 `json:"injected"`
	// Pods with the newest generation of the sidecar.
	Current int64 `json:"current"`
	// Pods whose sidecar is ready.
	Ready int64 `json:"ready"`
	// Pods whose sidecar fails.
	Failing int64 `json:"failing"`
}
