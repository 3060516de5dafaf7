// Package status is what the writer reports on a ConfigMap: the value of the
// status annotation, compact JSON by key of the ConfigMap.
//
//	{"mydata":{"url":"https://data.example.com","sha256":"…","size":12,"fetchedAt":"2026-01-02T03:04:05Z","object":"0b0e8a63","fence":"1767323045000.7","changedAt":"2026-01-02T03:04:05Z"}}
//
// What is wrong with the annotations themselves stands under the key *, which no
// ConfigMap has:
//
//	{"*":{"error":"InvalidAnnotation","message":"annotation value 'not correct' does not match expected format key=url","since":"2026-01-02T03:04:05Z"}}
//
// It is the writer's memory, too: by the fence results are recognised that are
// older than what the object holds, and by the rest the watcher recognises which
// keys are in sync when it, or NATS, starts from nothing. A user who may edit the
// ConfigMap may edit it, so a reader trusts its shape only after Parse.
package status
