package rule_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kv8s/curl-me-that/proto/rule"
)

func TestCheckingNestedLoopsIsFast(t *testing.T) {
	for name, element := range map[string]string{
		"map keys": "{v%[1]d:v%[1]d}", "map values": "{'a':v%[1]d,'b':v%[1]d}", "lists": "v%[1]d,v%[1]d",
		"conditions": "true?v%[1]d:v%[1]d", "lists of lists": "[v%[1]d,v%[1]d]",
		"maps in maps":   "{'a':{'a':v%[1]d},'b':{'a':v%[1]d}}",
		"selected lists": "[v%[1]d,v%[1]d].map(x,{'a':x})", "a list and an index": "[[v%[1]d]][0]",
	} {
		t.Run(name, func(t *testing.T) {
			text, end := "true || [1].all(v0,", ""
			for n := 0; len(text)+len(end)+80 < rule.MaxLength; n++ {
				text += fmt.Sprintf("["+element+"].all(v%[2]d,", n, n+1)
				end += ")"
			}
			for _, isRule := range []bool{true, false} {
				mistake := ""
				took := quickest(5*longest, func(try int) { // spaces bypass the cache
					mistake = rule.Mistake(text+"true"+end+")"+strings.Repeat(" ", try), isRule)
				})
				if took >= 5*longest { // an exponential check takes minutes at this length
					t.Errorf("took %s, mistake %q", took, mistake)
				}
				if name == "map keys" && !strings.Contains(mistake, "the key of a map must be a literal, column ") {
					t.Errorf("mistake %q", mistake)
				}
				t.Log(mistake)
			}
		})
	}
}
