package rule

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"google.golang.org/protobuf/types/known/structpb"
)

// maxNesting is the maximum nesting of JSON.
const maxNesting = 100

var errJSON = errors.New("not JSON")

// decode returns the JSON value of a body, or an error value. It reads tokens, because integers stay
// integers and the nesting is bounded.
func decode(body []byte) ref.Val {
	d := jsontext.NewDecoder(bytes.NewBuffer(body), jsontext.AllowDuplicateNames(true))
	value, err := decodeNext(d)
	if err == nil {
		_, err = d.ReadToken()
	}
	if !errors.Is(err, io.EOF) { // an incomplete value gives another error
		return types.WrapErr(errJSON)
	}
	return types.DefaultTypeAdapter.NativeToValue(value)
}

func decodeNext(d *jsontext.Decoder) (any, error) {
	token, err := d.ReadToken()
	if err != nil || d.StackDepth() > maxNesting {
		return nil, errJSON
	}
	switch token.Kind() {
	case '{':
		object := map[string]any{}
		for d.PeekKind() == '"' {
			name, _ := d.ReadToken()
			key := name.String()
			if object[key], err = decodeNext(d); err != nil {
				return nil, err
			}
		}
		_, err = d.ReadToken()
		return object, err
	case '[':
		list := []any{}
		for d.PeekKind() != ']' {
			value, err := decodeNext(d)
			if err != nil {
				return nil, err
			}
			list = append(list, value)
		}
		_, err = d.ReadToken()
		return list, err
	case '"':
		return token.String(), nil
	case 't', 'f':
		return token.Bool(), nil
	case 'n':
		return nil, nil
	}
	text := token.String()
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n, nil
	}
	return strconv.ParseFloat(text, 64)
}

// asNull encodes the null of CEL, which would otherwise become the number 0.
var asNull = json.WithMarshalers(json.MarshalToFunc( //nolint:gochecknoglobals // immutable
	func(e *jsontext.Encoder, _ structpb.NullValue) error { return e.WriteToken(jsontext.Null) }))

// encode returns the bytes of a selection: text unchanged, and anything else as JSON.
func (m *meter) encode(v ref.Val, limit int) (text []byte, cause Cause) {
	defer func() {
		if recover() != nil { // the key of a map is a list or a map, which package types cannot convert
			text, cause = nil, Inapplicable
		}
	}()
	switch v := v.(type) {
	case types.String:
		text = []byte(v)
	case types.Bytes:
		text = v
	default:
		// A small value may repeat a large part many times.
		if m.left = limit; !m.weigh(v, 1) {
			return nil, TooLarge
		}
		native, err := v.ConvertToNative(reflect.TypeFor[any]())
		if err == nil {
			text, err = json.Marshal(native, json.Deterministic(true), asNull)
		}
		if err != nil {
			return nil, Inapplicable
		}
	}
	if len(text) > limit {
		return nil, TooLarge
	}
	return text, Passed
}
