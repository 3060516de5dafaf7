// Package status is what the writer reports on a ConfigMap: the value of the
// status annotation, compact JSON by key of the ConfigMap.
//
//	{"mydata":{"url":"https://data.example.com","sha256":"…","size":12,"fetchedAt":"2026-01-02T03:04:05Z","object":"0b0e8a63","fence":"1767323045000.7"}}
//
// It is the writer's memory, too: the fence tells which results are older than
// what the object holds, and the rest tells the watcher which keys are
// satisfied when it, or NATS, starts from nothing. Anybody who may edit the
// ConfigMap may edit it, so a reader trusts its shape only after Parse.
package status
