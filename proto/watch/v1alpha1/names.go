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

// Types of conditions.
const (
	// ConditionReady: the ConfigMap holds all that is asked for.
	ConditionReady = "Ready"
	// ConditionFresh: the last attempt of every source was good.
	ConditionFresh = "Fresh"
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
)
