package rule

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

// maxNesting is the maximum nesting of JSON.
const maxNesting = 100

var errJSON = errors.New("not JSON")

// decode returns the JSON value of a body, or an error value. Integers stay integers. Package
// json takes several times as long.
func decode(body []byte) ref.Val {
	p := parser{text: string(body)}
	value := p.value(1)
	p.space()
	if p.failed || p.at != len(p.text) || !utf8.Valid(body) {
		return types.WrapErr(errJSON)
	}
	return types.DefaultTypeAdapter.NativeToValue(value)
}

// parser parses JSON (RFC 8259).
type parser struct {
	text   string
	at     int
	failed bool
}

// space skips white space and returns the next character, or 0 at the end.
func (p *parser) space() byte {
	for ; p.at < len(p.text); p.at++ {
		switch c := p.text[p.at]; c {
		case ' ', '\t', '\r', '\n':
		default:
			return c
		}
	}
	return 0
}

// skip skips a character, or fails.
func (p *parser) skip(c byte) {
	if p.space() != c {
		p.failed = true
		return
	}
	p.at++
}

// value parses the next value.
func (p *parser) value(depth int) any {
	switch c := p.space(); {
	case p.failed || depth > maxNesting:
		p.failed = true
		return nil
	case c == '{':
		object := map[string]any{}
		for more := p.opens('}'); more; more = p.continues('}') {
			key := p.string()
			p.skip(':')
			object[key] = p.value(depth + 1)
		}
		return object
	case c == '[':
		list := []any{}
		for more := p.opens(']'); more; more = p.continues(']') {
			list = append(list, p.value(depth+1))
		}
		return list
	case c == '"':
		return p.string()
	default:
		return p.scalar()
	}
}

// opens skips the opening bracket and reports whether an element follows.
func (p *parser) opens(end byte) bool {
	p.at++
	if p.space() != end {
		return true
	}
	p.at++
	return false
}

// continues skips what follows an element and reports whether another one follows.
func (p *parser) continues(end byte) bool {
	if !p.failed && p.space() == ',' {
		p.at++
		return true
	}
	p.skip(end)
	return false
}

// string parses text in quotation marks.
func (p *parser) string() string {
	p.skip('"')
	plain := true
	for start := p.at; p.at < len(p.text) && !p.failed; p.at++ {
		switch c := p.text[p.at]; {
		case c == '\\':
			plain = false
			p.at++
		case c == '"' && plain:
			p.at++
			return p.text[start : p.at-1]
		case c == '"':
			p.at++
			var text string
			p.failed = json.Unmarshal([]byte(p.text[start-1:p.at]), &text) != nil
			return text
		case c < ' ':
			p.failed = true
			return ""
		}
	}
	p.failed, p.at = true, len(p.text)
	return ""
}

// scalar parses a number, true, false or null.
func (p *parser) scalar() any {
	start := p.at
	for p.at < len(p.text) && strings.IndexByte(" \t\r\n,]}:\"[{", p.text[p.at]) < 0 {
		p.at++
	}
	text := p.text[start:p.at]
	switch text {
	case "true":
		return true
	case "false":
		return false
	case "null":
		return nil
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && json.Valid([]byte(text)) {
		return n
	}
	n, err := strconv.ParseFloat(text, 64)
	p.failed = p.failed || err != nil || !json.Valid([]byte(text))
	return n
}

// encode returns the bytes of a selection: text as it is, and anything else as JSON.
func encode(v ref.Val, limit int) ([]byte, Cause) {
	switch v := v.(type) {
	case types.String:
		return within([]byte(v), limit)
	case types.Bytes:
		return within(v, limit)
	}
	left := limit
	native, cause := plain(v, &left)
	if cause != Passed {
		return nil, cause
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if encoder.Encode(native) != nil {
		return nil, Inapplicable
	}
	return within(bytes.TrimSuffix(text.Bytes(), []byte("\n")), limit)
}

func within(text []byte, limit int) ([]byte, Cause) {
	if len(text) > limit {
		return nil, TooLarge
	}
	return text, Passed
}

// plain returns a value as package json encodes it. It counts the bytes first, because a small value
// may repeat a large part very often.
func plain(v ref.Val, left *int) (any, Cause) {
	if *left -= 1 + length(v); *left < 0 {
		return nil, TooLarge
	}
	switch v := v.(type) {
	case types.Bool, types.Int, types.Uint, types.Bytes:
		return v.Value(), Passed
	case types.String:
		return strings.ToValidUTF8(string(v), "\uFFFD"), Passed
	case types.Double:
		if n := float64(v); !math.IsNaN(n) && !math.IsInf(n, 0) {
			return n, Passed
		}
	case types.Null:
		return nil, Passed
	case traits.Mapper:
		object := map[string]any{}
		for it := v.Iterator(); it.HasNext() == types.True; {
			key := it.Next()
			value, cause := plain(v.Get(key), left)
			if cause != Passed {
				return nil, cause
			}
			name := fmt.Sprint(key.Value())
			*left -= len(name)
			object[name] = value
		}
		return object, Passed
	case traits.Lister:
		list := []any{}
		for it := v.Iterator(); it.HasNext() == types.True; {
			value, cause := plain(it.Next(), left)
			if cause != Passed {
				return nil, cause
			}
			list = append(list, value)
		}
		return list, Passed
	}
	return nil, Inapplicable
}
