package v1alpha1

const (
	// WatcherLabel on a ConfigMap names the Watcher that it belongs to
	// (LabelValue). A ConfigMap that carries it may be taken over by that Watcher.
	WatcherLabel = "watch.x-kv8s.io/watcher"
	// AppliedAnnotation on a ConfigMap is the digest of what keeper last applied.
	AppliedAnnotation = "watch.x-kv8s.io/applied"
	// FieldManager is the name under which keeper applies.
	FieldManager = "curl-me-that-keeper"
)

// What injection reads and writes.
const (
	// InjectLabel on a namespace, with InjectValue, lets its pods get sidecars.
	InjectLabel = "x-kv8s.io/inject"
	// InjectValue is the value of InjectLabel.
	InjectValue = "enabled"
	// InjectAnnotation on a pod names the Watchers whose sidecars it gets, with
	// commas between them.
	InjectAnnotation = "x-kv8s.io/inject"
	// InjectedAnnotation on a pod has of each sidecar that it got the name of the
	// Watcher and its generation, as in errors=3, with commas between them.
	InjectedAnnotation = "x-kv8s.io/injected"
	// InjectedLabel is "true" on each pod that got a sidecar.
	InjectedLabel = "watch.x-kv8s.io/injected"
)

// Types of conditions.
const (
	// ConditionReady: the ConfigMap holds all that is asked for.
	ConditionReady = "Ready"
	// ConditionFresh: the last attempt of every source was good.
	ConditionFresh = "Fresh"
	// ConditionInjectable is present with a container: pods get it as a sidecar.
	ConditionInjectable = "Injectable"
	// ConditionReconciling is present while the Watcher is on its way to Ready.
	ConditionReconciling = "Reconciling"
	// ConditionStalled is present while nothing but an edit helps.
	ConditionStalled = "Stalled"
)

// Reasons of conditions that are no failures of a fetch.
const (
	// ReasonReady: all is there.
	ReasonReady = "Ready"
	// ReasonFresh: the last attempt of every source was good.
	ReasonFresh = "Fresh"
	// ReasonProgressing: something is under way.
	ReasonProgressing = "Progressing"
	// ReasonFetching: a source has not been fetched yet.
	ReasonFetching = "Fetching"
	// ReasonSuspended: nothing is fetched.
	ReasonSuspended = "Suspended"
	// ReasonTargetExists: the ConfigMap exists and belongs to somebody else.
	ReasonTargetExists = "TargetExists"
	// ReasonTargetOwned: the ConfigMap belongs to another Watcher.
	ReasonTargetOwned = "TargetOwned"
	// ReasonTargetImmutable: the ConfigMap is immutable.
	ReasonTargetImmutable = "TargetImmutable"
	// ReasonTargetRefused: the API server refuses the ConfigMap.
	ReasonTargetRefused = "TargetRefused"
	// ReasonTooLarge: the static data does not fit into a ConfigMap.
	ReasonTooLarge = "TooLarge"
	// ReasonInvalidSource: a source cannot be written as an annotation.
	ReasonInvalidSource = "InvalidSource"
	// ReasonFetchFailed: a source has never been fetched, and fails.
	ReasonFetchFailed = "FetchFailed"
	// ReasonInjectable: pods that name the Watcher get its sidecar.
	ReasonInjectable = "Injectable"
	// ReasonPoliciesMissing: the operator has not enabled sidecars.
	ReasonPoliciesMissing = "PoliciesMissing"
	// ReasonNamespaceNotEnabled: the namespace does not have InjectLabel, or is
	// protected.
	ReasonNamespaceNotEnabled = "NamespaceNotEnabled"
	// ReasonPodSecurity: the standard of Pod Security that the namespace enforces
	// refuses pods with the sidecar.
	ReasonPodSecurity = "PodSecurity"
)

// Reasons of Events about sidecars.
const (
	// ReasonSidecarFailing: the sidecar of a pod fails, and none did before.
	ReasonSidecarFailing = "SidecarFailing"
	// ReasonSidecarRecovered: no sidecar fails any more.
	ReasonSidecarRecovered = "SidecarRecovered"
)
