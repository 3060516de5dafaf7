package rule

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
)

func TestAPanicOfTheCompilerIsAMistake(t *testing.T) {
	before := environment
	defer func() { environment = before }()
	environment = func() *cel.Env { panic("index out of range") }
	if got := Mistake("body == 'panics'", true); got != "it cannot be compiled" {
		t.Errorf("mistake %q", got)
	}
}

func TestDecodeAgreesWithPackageJSON(t *testing.T) {
	for _, text := range []string{
		`{}`, `[]`, ` { "a" : [ 1 , -2.5e3 , "x" ] , "b" : { } } `, `"\u00e9\n\"\\"`, `"é"`, `true`, `null`, `[[[]],[{}]]`,
		`0`, `-0`,
		``, ` `, `{`, `[`, `}`, `[1[2]]`, `[1,]`, `[,1]`, `{"a"}`, `{"a":}`, `{"a":1,}`, `{a:1}`, `"a`, `"\x"`, "\"\n\"",
		`01`, `1.`, `.5`, `+1`,
		`1e`, `0x10`, `1_000`, `Infinity`, `NaN`, `tru`, `truex`, `nul`, `1 2`, `[1 2]`, `{"a" 1}`, `[1]]`, `"a""b"`,
		`{"a":1"b":2}`, `{"\x":1}`, `{"a`, `[1`, `[1,`, `{"a":1`, `[1}`, `-`,
		`"\`, `{"a":1,"a":2}`, "\xff", `[1e999]`,
	} {
		var want any
		err := json.Unmarshal([]byte(text), &want)
		got := decode([]byte(text))
		if types.IsError(got) != (err != nil) {
			t.Errorf("%q: %v, package json: %v", text, got, err)
		}
		if err == nil && !reflect.DeepEqual(floats(got.Value()), want) {
			t.Errorf("%q: %v, package json: %v", text, got.Value(), want)
		}
	}
}

// floats replaces integers, because package json decodes only floats.
func floats(v any) any {
	switch v := v.(type) {
	case int64:
		return float64(v)
	case types.Int:
		return float64(v)
	case []any:
		for i := range v {
			v[i] = floats(v[i])
		}
	case map[string]any:
		for key := range v {
			v[key] = floats(v[key])
		}
	}
	if reflect.ValueOf(v).Kind() == reflect.Int32 { // CEL's null
		return nil
	}
	return v
}

func TestNestingIsBounded(t *testing.T) {
	for n, valid := range map[int]bool{maxNesting: true, maxNesting + 1: false} {
		text := strings.Repeat("[", n) + strings.Repeat("]", n)
		if types.IsError(decode([]byte(text))) == valid {
			t.Errorf("%d levels", n)
		}
	}
}
