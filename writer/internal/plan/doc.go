// Package plan decides what results mean for a ConfigMap.
//
// It is pure: from what is known of the object and the results that wait for
// it follows a plan of one patch, the verdict on each result, and the Events
// to emit. All promises about what may change are kept here:
//
//   - only a key that the object asks for, from exactly that URL, is written;
//   - a key that somebody else owns and that we never wrote is left alone;
//   - a failure never touches a value;
//   - a result that is not newer than the fence of its key changes nothing.
//
// What makes the plan safe to carry out is not here: the patch carries uid and
// resourceVersion of the object that was planned for, so that the API server
// refuses it when anything has changed.
package plan
