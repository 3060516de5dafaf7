package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Watcher watches URLs and has a ConfigMap with what they hold.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=wat
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Fresh",type=string,JSONPath=`.status.conditions[?(@.type=="Fresh")].status`
// +kubebuilder:printcolumn:name="Fetched",type=string,JSONPath=`.status.fetched`
// +kubebuilder:printcolumn:name="ConfigMap",type=string,JSONPath=`.status.configMapName`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Changed",type=date,priority=1,JSONPath=`.status.changedAt`
// +kubebuilder:printcolumn:name="Pods",type=integer,priority=1,JSONPath=`.status.pods.injected`
// +kubebuilder:validation:XValidation:rule="has(self.spec.target) && has(self.spec.target.name) || size(self.metadata.name) <= 246",message="the name is longer than 246 characters, which leaves no room for -config; name the ConfigMap in spec.target.name"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.container) || size(self.metadata.name) <= 63",message="the name of a Watcher with a container has at most 63 characters"
type Watcher struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// What is wanted.
	// +required
	Spec WatcherSpec `json:"spec"`
	// What is.
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

// WatcherSpec is what is wanted.
//
// +kubebuilder:validation:XValidation:rule="has(self.configData) || has(self.configBinaryData) || has(self.sources) || has(self.container)",message="a Watcher needs at least one of configData, configBinaryData, sources and container"
// +kubebuilder:validation:XValidation:rule="!has(self.configData) || !has(self.configBinaryData) || self.configData.all(k, !(k in self.configBinaryData))",message="a key stands in configData and in configBinaryData; take it out of one"
// +kubebuilder:validation:XValidation:rule="!has(self.sources) || !has(self.configData) || self.sources.all(s, !(s.key in self.configData))",message="a key stands in sources and in configData; take it out of one"
// +kubebuilder:validation:XValidation:rule="!has(self.sources) || !has(self.configBinaryData) || self.sources.all(s, !(s.key in self.configBinaryData))",message="a key stands in sources and in configBinaryData; take it out of one"
// +kubebuilder:validation:XValidation:rule="(has(self.target) && has(self.target.name) ? self.target.name : '.') == (has(oldSelf.target) && has(oldSelf.target.name) ? oldSelf.target.name : '.')",message="target.name cannot be changed, added or removed; make another Watcher"
// +kubebuilder:validation:XValidation:rule="!has(self.volume) || has(self.container)",message="volume needs container"
// +kubebuilder:validation:XValidation:rule="!has(self.imagePullSecrets) || has(self.container)",message="imagePullSecrets needs container"
type WatcherSpec struct {
	// Nothing is fetched or repaired while this is true. Static data and sidecar
	// stay.
	// +optional
	Suspend bool `json:"suspend,omitempty"`
	// Interval at which all sources are fetched again, such as 10m; absent: they
	// are fetched once.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+([.][0-9]+)?(ms|s|m|h))+$') && duration(self) >= duration('10s') && duration(self) <= duration('8760h')",message="interval is a duration such as 10m or 1h30m, from 10s to 8760h"
	Interval string `json:"interval,omitempty"`
	// The ConfigMap.
	// +optional
	Target Target `json:"target,omitzero"`
	// Text that the ConfigMap holds as it stands here.
	// +optional
	// +kubebuilder:validation:MaxProperties=256
	// +kubebuilder:validation:XValidation:rule="self.all(k, k.matches('^[-._a-zA-Z0-9]{1,253}$') && k != '.' && !k.startsWith('..'))",message="a key has 1 to 253 letters, digits, -, _ and ., is not . and has no .. at its beginning"
	ConfigData map[string]string `json:"configData,omitempty"`
	// The same in base64, for what is not text.
	// +optional
	// +kubebuilder:validation:MaxProperties=256
	// +kubebuilder:validation:XValidation:rule="self.all(k, k.matches('^[-._a-zA-Z0-9]{1,253}$') && k != '.' && !k.startsWith('..'))",message="a key has 1 to 253 letters, digits, -, _ and ., is not . and has no .. at its beginning"
	ConfigBinaryData map[string][]byte `json:"configBinaryData,omitempty"`
	// URLs whose bodies the ConfigMap holds.
	// +optional
	// +listType=map
	// +listMapKey=key
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=128
	Sources []Source `json:"sources,omitempty"`
	// The sidecar that pods get which name this Watcher in the annotation
	// x-kv8s.io/inject: a container of core/v1. To set, change or remove it, as the
	// volume and the Secret with it, one must be allowed to create pods.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:XValidation:rule="self.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$') && size(self.name) <= 63",message="the name of a container has at most 63 of a-z, 0-9 and -, and no - at its ends"
	// +kubebuilder:validation:XValidation:rule="!has(self.restartPolicy) || self.restartPolicy == 'Always'",message="the restartPolicy of a sidecar is Always; leave it out"
	// +kubebuilder:validation:XValidation:rule="has(self.image) && size(self.image) > 0",message="a container needs an image"
	Container *corev1.Container `json:"container,omitempty"`
	// A volume for the pod, unless it has one of that name: a volume of core/v1.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:XValidation:rule="self.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$') && size(self.name) <= 63",message="the name of a volume has at most 63 of a-z, 0-9 and -, and no - at its ends"
	Volume *corev1.Volume `json:"volume,omitempty"`
	// A Secret to pull the image of the sidecar with.
	// +optional
	// +kubebuilder:validation:XValidation:rule="has(self.name) && size(self.name) > 0",message="imagePullSecrets needs the name of a Secret"
	ImagePullSecrets *corev1.LocalObjectReference `json:"imagePullSecrets,omitempty"`
}

// Target is the ConfigMap.
type Target struct {
	// Name of the ConfigMap; absent: that of the Watcher and -config. It cannot
	// be changed.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="the name of a ConfigMap has a-z, 0-9, - and ., and no - or . at its ends"
	Name string `json:"name,omitempty"`
	// What becomes of the ConfigMap when the Watcher is deleted: Delete, or
	// Retain, which leaves it as an ordinary annotated one.
	// +optional
	// +kubebuilder:default=Delete
	DeletionPolicy DeletionPolicy `json:"deletionPolicy,omitempty"`
}

// DeletionPolicy is what becomes of the ConfigMap when the Watcher is deleted.
//
// +kubebuilder:validation:Enum=Delete;Retain
type DeletionPolicy string

// The policies.
const (
	// Delete lets the ConfigMap be garbage-collected with the Watcher.
	Delete DeletionPolicy = "Delete"
	// Retain leaves the ConfigMap.
	Retain DeletionPolicy = "Retain"
)

// Source is a URL and the key that its body goes to.
type Source struct {
	// Key of the ConfigMap.
	// +required
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[-._a-zA-Z0-9]{1,253}$') && self != '.' && !self.startsWith('..')",message="a key has 1 to 253 letters, digits, -, _ and ., is not . and has no .. at its beginning"
	Key string `json:"key"`
	// URL to fetch by GET; without a scheme https:// is assumed.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="self.matches('^[!-~]*$')",message="a url has no white space and only printable ASCII; escape the others, as in %20"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^[A-Za-z][-A-Za-z0-9+.]*://') || self.matches('^[Hh][Tt][Tt][Pp][Ss]?://')",message="the scheme of a url is http or https"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^([A-Za-z][-A-Za-z0-9+.]*://)?[^/?#]*@')",message="a url carries no user name and no password; ask the operator for credentials of that host"
	URL string `json:"url"`
	// SHA256 that the body must have, 64 lower-case hexadecimal digits; absent:
	// any body is taken.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="size(self) == 0 || self.matches('^[0-9a-f]{64}$')",message="sha256 has 64 lower-case hexadecimal digits"
	SHA256 string `json:"sha256,omitempty"`
}

// WatcherStatus is what is.
type WatcherStatus struct {
	// Generation of the Watcher that the rest is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Name of the ConfigMap, also before it exists.
	// +optional
	ConfigMapName string `json:"configMapName,omitempty"`
	// Conditions: Ready, Fresh, with a container Injectable, and while they are true
	// Reconciling and Stalled.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// How many sources the ConfigMap has a body of, such as 2/3.
	// +optional
	Fetched string `json:"fetched,omitempty"`
	// State of each source.
	// +optional
	// +listType=map
	// +listMapKey=key
	Sources []SourceStatus `json:"sources,omitempty"`
	// Digest over all content: static data, and the body of each source.
	// +optional
	ContentSHA256 string `json:"contentSHA256,omitempty"`
	// When that digest last changed.
	// +optional
	ChangedAt *metav1.Time `json:"changedAt,omitempty"`
	// Value of the annotation x-kv8s.io/curl-now that was last carried into the
	// ConfigMap.
	// +optional
	LastHandledReconcileAt string `json:"lastHandledReconcileAt,omitempty"`
	// Pods with the sidecar, as counts.
	// +optional
	Pods *PodsStatus `json:"pods,omitempty"`
}

// SourceState is how a source fares.
//
// +kubebuilder:validation:Enum=Pending;Good;Failing
type SourceState string

// The states.
const (
	// Pending: it has not been fetched yet.
	Pending SourceState = "Pending"
	// Good: the ConfigMap has its body.
	Good SourceState = "Good"
	// Failing: the last attempt failed. The ConfigMap may have an earlier body.
	Failing SourceState = "Failing"
)

// SourceStatus is the state of one source. It has neither the URL, which the spec
// has, nor any text of a server.
type SourceStatus struct {
	// Key of the source.
	Key string `json:"key"`
	// State: Pending, Good or Failing.
	State SourceState `json:"state"`
	// SHA256 of the body that the ConfigMap has; absent: it has none.
	// +optional
	SHA256 string `json:"sha256,omitempty"`
	// Size of the body in bytes.
	// +optional
	Size int64 `json:"size,omitempty"`
	// When the body last changed.
	// +optional
	FetchedAt *metav1.Time `json:"fetchedAt,omitempty"`
	// Reason of the failure, as in Events.
	// +optional
	Reason string `json:"reason,omitempty"`
	// When the first attempt of the unbroken row of failures was made.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
	// Attempts in that row when it was reported.
	// +optional
	Attempts int64 `json:"attempts,omitempty"`
	// Nothing is tried before the next interval or edit.
	// +optional
	GaveUp bool `json:"gaveUp,omitempty"`
}

// PodsStatus counts pods with the sidecar.
type PodsStatus struct {
	// Pods that have the sidecar.
	Injected int64 `json:"injected"`
	// Those that have it of the newest generation.
	Current int64 `json:"current"`
	// Those whose sidecar is ready.
	Ready int64 `json:"ready"`
	// Those whose sidecar fails.
	Failing int64 `json:"failing"`
}
