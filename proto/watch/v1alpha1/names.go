package v1alpha1

const (
	// WatcherLabel on a ConfigMap names its Watcher (LabelValue). That Watcher may take over a
	// ConfigMap with this label.
	WatcherLabel = "watch.x-kv8s.io/watcher"
	// AppliedAnnotation on a ConfigMap is the digest of the content that keeper last applied.
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
	// ReasonTargetRefused: the API server rejects the ConfigMap.
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
