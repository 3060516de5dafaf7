// Package promise checks writes to ConfigMaps against the promises of the system:
//
//	S1 only the annotated key and the status annotation ever change
//	S2 a body is written only where the annotation requests it at that moment
//	S3 nothing is created, and no result lands in another object
//	S4 a key that was never ours is never overwritten
//	S5 the last good value stays on failure, and no error body is stored
//	W1 no write is without effect
//
// It checks the final state against:
//
//	L4 a key is repaired within the audit interval once its cause is gone
//	T1 no object, namespace or host stops or starves another
package promise
