package informer

// Event is a kind of event from a watch.
type Event string

const (
	// Added: the watch delivers a new object.
	Added Event = "added"
	// Modified: an object changed.
	Modified Event = "modified"
	// Deleted: the object is gone, or no longer matches the selector.
	Deleted Event = "deleted"
	// Bookmark: the watch is alive.
	Bookmark Event = "bookmark"
	// List: all objects of a namespace at once.
	List Event = "list"
)

// Events returns all events.
func Events() []Event { return []Event{Added, Modified, Deleted, Bookmark, List} }
