// Package promise holds what was written to ConfigMaps against what the system
// promises about its writes:
//
//	S1 only the annotated key and the status annotation ever change
//	S2 a body is written only where it is asked for at that moment
//	S3 nothing is created, and no result lands in another object
//	S4 a key that was never ours is never overwritten
//	S5 the last good value stays on failure, and no error body is stored
//	W1 nothing is written that changes nothing
//
// and what there is in the end against
//
//	L4 a key comes right within the audit interval once its cause is gone
//	T1 no object, namespace or host stops or starves another
package promise
