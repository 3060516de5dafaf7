// Package plan decides how results change a ConfigMap.
//
// It is pure. The known object and the pending results determine one patch, a verdict on each
// result, and the Events to emit. Package plan keeps these promises:
//
//   - only an annotated key is written, and only from its annotated URL;
//   - a key of another owner that we never wrote is not touched;
//   - a failure never touches a value;
//   - a result that is not newer than the fence of its key changes nothing.
//
// The API server refuses the patch if the object has changed, because the patch carries the uid and
// the resourceVersion of the planned object.
package plan
