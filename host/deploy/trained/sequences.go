package trained

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json/jsontext"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"strconv"

	"github.com/cage-qat/cage/host/data/source"
	"github.com/cage-qat/cage/host/deploy/tasks"
	"github.com/cage-qat/cage/host/model/safetensors"
	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/internal/atomicfile"
)

// Reader reads sequences of token ids from JSON lines.
type Reader struct {
	Vocab   int            // ids must be below it
	Most    int            // largest number of ids in a sequence
	Encoder *tasks.Encoder // if not nil, lines are texts; nil: lists of ids
}

// Read reads all lines; blank ones are skipped.
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

// tooLong returns the error for a sequence that is too long, with its length in words.
func (s *Reader) tooLong(length string) error {
	return fmt.Errorf("a sequence of %s tokens: a model with a context of %d scores at most %d (the last is only predicted)", length, s.Most-1, s.Most)
}

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

// SaveScores writes a file: safetensors if its name ends in .safetensors, else JSON lines.
func SaveScores(ctx context.Context, file string, sequences [][]int32, logProbs [][]float32) error {
	to, err := atomicfile.Target(file)
	if err != nil {
		return err
	}
	if filepath.Ext(file) != ".safetensors" {
		return atomicfile.Write(to, func(w io.Writer) error { return WriteScores(w, sequences, logProbs) })
	}
	var tensors []safetensors.Tensor
	for i := range sequences {
		ids, err := safetensors.New(fmt.Sprintf("ids.%d", i), []int{len(sequences[i])}, sequences[i])
		if err != nil {
			return err
		}
		values, err := safetensors.New(fmt.Sprintf("log_probs.%d", i), []int{len(logProbs[i])}, logProbs[i])
		if err != nil {
			return err
		}
		tensors = append(tensors, ids, values)
	}
	return safetensors.WriteFile(ctx, to, tensors, nil)
}

// MeanLogProb returns the mean over all log-probabilities, and their number.
func MeanLogProb(list [][]float32) (mean float64, tokens int) {
	for _, sequence := range list {
		for _, v := range sequence {
			mean += float64(v)
		}
		tokens += len(sequence)
	}
	return mean / float64(tokens), tokens
}

// WriteScores writes a JSON line for each sequence.
func WriteScores(to io.Writer, sequences [][]int32, logProbs [][]float32) error {
	w := bufio.NewWriter(to)
	var line []byte
	for i, ids := range sequences {
		line = append(line[:0], `{"ids": [`...)
		for k, id := range ids {
			if k > 0 {
				line = append(line, ", "...)
			}
			line = strconv.AppendInt(line, int64(id), 10)
		}
		line = append(line, `], "log_probs": [`...)
		for k, v := range logProbs[i] {
			if k > 0 {
				line = append(line, ", "...)
			}
			if x := float64(v); math.IsNaN(x) || math.IsInf(x, 0) { // JSON cannot represent it
				text, _ := metrics.Number(x).MarshalJSON() // a string, without an error
				line = append(line, text...)
			} else { // the shortest text that parses to the same number
				line = strconv.AppendFloat(line, x, 'g', -1, 32)
			}
		}
		if _, err := w.Write(append(line, "]}\n"...)); err != nil {
			return err
		}
	}
	return w.Flush()
}
