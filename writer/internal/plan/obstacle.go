package plan

// Obstacle is why the API server does not accept a change of one object.
type Obstacle string

// The obstacles.
const (
	// Immutable means that the values cannot be changed.
	Immutable Obstacle = "immutable"
	// TooLarge means that the values exceed a limit.
	TooLarge Obstacle = "too_large"
	// ObjectTooLarge means that values and metadata together exceed a limit of the API server or of etcd.
	ObjectTooLarge Obstacle = "object_too_large"
	// StatusTooLarge means that the annotations exceed their limit.
	StatusTooLarge Obstacle = "status_too_large"
	// Rejected means that this change is refused, for example by an admission webhook.
	Rejected Obstacle = "rejected"
	// Stripped means that admission removed the status from the patch, which was accepted otherwise.
	Stripped Obstacle = "stripped"
	// Altered means that admission changed a value in the patch, which was accepted otherwise.
	Altered Obstacle = "altered"
	// Failed means that the request failed, or was not answered in time. While the API server is ready, that is the
	// fault of the object, for example of an admission webhook that is slow or broken.
	Failed Obstacle = "failed"
)
