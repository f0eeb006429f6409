package query

import (
	"bytes"
	"encoding/json/jsontext"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/cage-qat/cage/host/data/source"
	"github.com/cage-qat/cage/host/deploy/tasks"
)

// Reader reads sequences of token ids from lines of JSON.
type Reader struct {
	Vocab   int            // ids are below it
	Most    int            // ids of a sequence
	Encoder *tasks.Encoder // lines are texts; nil: lists of ids
}

// Read reads all lines; those of white space are skipped.
func (s *Reader) Read(r io.Reader) (list [][]int32, err error) {
	for row, err := range source.ReadObjects(r) {
		switch {
		case err != nil:
			return nil, err
		case row.Err != nil:
			return nil, row.Err
		}
		ids, err := s.line(row.Text)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", row.Number, err)
		}
		list = append(list, ids)
	}
	if len(list) == 0 {
		return nil, errors.New("there are no sequences: want one in each line")
	}
	return list, nil
}

func (s *Reader) line(text []byte) (ids []int32, err error) {
	d := jsontext.NewDecoder(bytes.NewBuffer(text))
	if s.Encoder != nil {
		ids, err = s.text(d)
	} else {
		ids, err = s.ids(d)
	}
	if err != nil {
		return nil, err
	}
	if _, err := d.ReadToken(); err != io.EOF {
		return nil, errors.New("there is something behind the sequence: want one in each line")
	}
	if len(ids) < 2 {
		return nil, fmt.Errorf("a sequence of length %d: want at least 2 tokens, the first of which only begins it", len(ids))
	}
	return ids, nil
}

// tooLong is the error of a sequence of a length, in words.
func (s *Reader) tooLong(length string) error {
	return fmt.Errorf("a sequence of %s tokens: a model with a context of %d scores at most %d (the last is only predicted)", length, s.Most-1, s.Most)
}

// ids reads a list of ids.
func (s *Reader) ids(d *jsontext.Decoder) (ids []int32, err error) {
	want := fmt.Sprintf("want a list of token ids, from 0 to %d", s.Vocab-1)
	if token, err := d.ReadToken(); err != nil || token.Kind() != '[' {
		return nil, errors.New(want)
	}
	for d.PeekKind() != ']' {
		value, err := d.ReadValue()
		if err != nil {
			return nil, fmt.Errorf("behind %d ids there is no JSON: %s", len(ids), want)
		}
		id, err := strconv.Atoi(string(value))
		if err != nil || id < 0 || id >= s.Vocab {
			return nil, fmt.Errorf("id %d is %.40s: %s", len(ids), value, want)
		}
		if len(ids) == s.Most {
			return nil, s.tooLong("more than " + strconv.Itoa(s.Most))
		}
		ids = append(ids, int32(id))
	}
	_, err = d.ReadToken()
	return ids, err
}

// text reads a text.
func (s *Reader) text(d *jsontext.Decoder) ([]int32, error) {
	token, err := d.ReadToken()
	if err != nil || token.Kind() != '"' {
		return nil, errors.New(`want a text as a JSON string, as "Hello"`)
	}
	ids, err := s.Encoder.Encode(token.String())
	if err != nil {
		return nil, err
	}
	if s.Encoder.BOS >= 0 {
		ids = append([]int32{s.Encoder.BOS}, ids...)
	}
	if len(ids) > s.Most {
		return nil, s.tooLong(strconv.Itoa(len(ids)))
	}
	return ids, nil
}
