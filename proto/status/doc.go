// Package status parses and formats the status annotation, in which the writer reports: compact
// JSON by key of the ConfigMap.
//
//	{"mydata":{"url":"https://data.example.com","sha256":"…","size":12,
//	 "fetchedAt":"2026-01-02T03:04:05Z","object":"0b0e8a63","fence":"1767323045000.7",
//	 "changedAt":"2026-01-02T03:04:05Z"}}
//
// Problems with the annotations themselves have the key *, which no ConfigMap has:
//
//	{"*":{"error":"InvalidAnnotation",
//	 "message":"annotation value 'not correct' does not match expected format key=url",
//	 "since":"2026-01-02T03:04:05Z"}}
//
// The status is also the writer's memory. The fence identifies results that are older than the
// object's content. The rest tells the watcher which keys are in sync when it, or NATS, starts
// without state. Anybody who may edit the ConfigMap may edit the status, so only Parse makes its
// form trustworthy.
package status
