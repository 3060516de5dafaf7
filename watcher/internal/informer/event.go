package informer

// Event is what a watch delivers, from a closed set.
type Event string

// The events.
const (
	// Added: an object is new in the sight of the watch.
	Added Event = "added"
	// Modified: an object was changed.
	Modified Event = "modified"
	// Deleted: an object left the sight of the watch.
	Deleted Event = "deleted"
	// Bookmark: nothing happened, and the watch is alive.
	Bookmark Event = "bookmark"
	// List: all objects of a namespace at once.
	List Event = "list"
)

// Events returns all events.
func Events() []Event { return []Event{Added, Modified, Deleted, Bookmark, List} }
