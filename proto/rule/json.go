package rule

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
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
// json takes several times as long to decode, but not to validate.
func decode(body []byte) ref.Val {
	p := parser{text: string(body)}
	p.failed = !utf8.Valid(body) || !json.Valid(body)
	value := p.value(1)
	if p.failed {
		return types.WrapErr(errJSON)
	}
	return types.DefaultTypeAdapter.NativeToValue(value)
}

// parser parses valid JSON (RFC 8259). It fails if the nesting is too deep, or a number too large.
type parser struct {
	text   string
	at     int
	failed bool
}

// next skips separators and returns the next character.
func (p *parser) next() byte {
	for strings.IndexByte(" \t\r\n,:", p.text[p.at]) >= 0 {
		p.at++
	}
	return p.text[p.at]
}

// more reports whether an element follows, and otherwise skips the closing bracket.
func (p *parser) more(end byte) bool {
	if p.failed || p.next() != end {
		return !p.failed
	}
	p.at++
	return false
}

// value parses the next value.
func (p *parser) value(depth int) any {
	if p.failed = p.failed || depth > maxNesting; p.failed {
		return nil
	}
	switch p.next() {
	case '{':
		object := map[string]any{}
		for p.at++; p.more('}'); {
			p.next()
			key := p.string()
			object[key] = p.value(depth + 1)
		}
		return object
	case '[':
		list := []any{}
		for p.at++; p.more(']'); {
			list = append(list, p.value(depth+1))
		}
		return list
	case '"':
		return p.string()
	}
	return p.scalar()
}

// string parses text in quotation marks.
func (p *parser) string() (text string) {
	start, plain := p.at, true
	for p.at++; p.text[p.at] != '"'; p.at++ {
		if p.text[p.at] == '\\' {
			plain = false
			p.at++
		}
	}
	p.at++
	if plain {
		return p.text[start+1 : p.at-1]
	}
	p.failed = json.Unmarshal([]byte(p.text[start:p.at]), &text) != nil
	return text
}

// scalar parses a number, true, false or null.
func (p *parser) scalar() any {
	start := p.at
	for p.at < len(p.text) && strings.IndexByte(" \t\r\n,]}", p.text[p.at]) < 0 {
		p.at++
	}
	text := p.text[start:p.at]
	switch text {
	case "true", "false":
		return text == "true"
	case "null":
		return nil
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n
	}
	n, err := strconv.ParseFloat(text, 64)
	p.failed = err != nil
	return n
}

// encode returns the bytes of a selection: text as it is, and anything else as JSON.
func encode(v ref.Val, limit int) (text []byte, _ Cause) {
	switch v := v.(type) {
	case types.String:
		text = []byte(v)
	case types.Bytes:
		text = v
	default:
		var buffer bytes.Buffer
		encoder, s := json.NewEncoder(&buffer), selection{left: limit}
		encoder.SetEscapeHTML(false)
		if native := s.plain(v); s.cause == Passed && encoder.Encode(native) != nil {
			s.cause = Inapplicable
		}
		if s.cause != Passed {
			return nil, s.cause
		}
		text = bytes.TrimSuffix(buffer.Bytes(), []byte("\n"))
	}
	if len(text) > limit {
		return nil, TooLarge
	}
	return text, Passed
}

// selection counts the bytes of a value before it is encoded, because a small value may repeat a large
// part very often.
type selection struct {
	left  int
	cause Cause
}

// plain returns a value as package json encodes it.
func (s *selection) plain(v ref.Val) any {
	if s.left -= 1 + length(v); s.left < 0 {
		s.cause = TooLarge
		return nil
	}
	switch v := v.(type) {
	case types.Bool, types.Int, types.Uint, types.Double, types.String, types.Bytes:
		return v.Value()
	case types.Null:
		return nil
	case traits.Mapper:
		object := map[string]any{}
		for it := v.Iterator(); s.cause == Passed && it.HasNext() == types.True; {
			key := it.Next()
			name := fmt.Sprint(key.Value())
			s.left -= len(name)
			object[name] = s.plain(v.Get(key))
		}
		return object
	case traits.Lister:
		list := []any{}
		for it := v.Iterator(); s.cause == Passed && it.HasNext() == types.True; {
			list = append(list, s.plain(it.Next()))
		}
		return list
	}
	s.cause = Inapplicable
	return nil
}
