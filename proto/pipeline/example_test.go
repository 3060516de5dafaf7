package pipeline_test

import (
	"fmt"

	"github.com/kv8s/curl-me-that/proto/pipeline"
)

func ExampleKey() {
	key := pipeline.Key{Namespace: "team-a", Name: "config.v2", Key: "ca.pem"}
	fmt.Println(key.Want())
	fmt.Println(key.Timer())
	fmt.Println(key.Due())
	fmt.Println(key.Content())
	kind, parsed, err := pipeline.ParseSubject(key.Timer())
	fmt.Println(kind, parsed, err)
	// Output:
	// curl.want.team-a.config%2Ev2.ca%2Epem
	// curl.timer.team-a.config%2Ev2.ca%2Epem
	// curl.due.team-a.config%2Ev2.ca%2Epem
	// curl.result.content.team-a.config%2Ev2.ca%2Epem
	// curl.timer team-a/config.v2/ca.pem <nil>
}
