package jinja

import (
	"bytes"
	"encoding/json/jsontext"
	"errors"
	"fmt"
	"io"

	"github.com/cage-qat/cage/internal/plainjson"
)

// FromJSON decodes a JSON text. Mappings keep the order of their keys, and integer literals become
// integers. As in Python, these have any size, and larger floating-point numbers become infinite.
// Duplicate keys and unpaired surrogates are errors.
func FromJSON(text []byte) (any, error) {
	dec := jsontext.NewDecoder(bytes.NewReader(text))
	value, err := readJSON(dec, 0)
	if err == nil {
		if _, err = dec.ReadToken(); err == nil {
			return nil, errors.New("more text follows the JSON value")
		} else if err == io.EOF {
			return value, nil
		}
	}
	return nil, plainjson.Explain(text, err)
}

func readJSON(dec *jsontext.Decoder, depth int) (any, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("values are nested more than %d deep", maxDepth)
	}
	t, err := dec.ReadToken()
	if err != nil {
		return nil, err
	}
	switch t.Kind() {
	case '[':
		list := []any{}
		for dec.PeekKind() != ']' {
			element, err := readJSON(dec, depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, element)
		}
		_, err := dec.ReadToken()
		return list, err
	case '{':
		d := &Dict{}
		for dec.PeekKind() != '}' {
			name, err := dec.ReadToken()
			if err != nil {
				return nil, err
			}
			key := name.String() // must precede the next ReadToken
			value, err := readJSON(dec, depth+1)
			if err != nil {
				return nil, err
			}
			d.Set(key, value)
		}
		_, err := dec.ReadToken()
		return d, err
	case '0':
		number, err := parseNumber(t.String())
		if err != nil && !is[float64](number) {
			return longInteger(t.String()), nil
		}
		return number, nil
	case '"':
		return t.String(), nil
	case 'n':
		return nil, nil
	}
	return t.Bool(), nil
}
