package trained

import (
	"bufio"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/cage-qat/cage/host/data/source"
	"github.com/cage-qat/cage/host/deploy/tasks"
	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/internal/lists"
)

// Reader reads sequences of token ids from JSON Lines.
type Reader struct {
	Vocab     int            // ids must be below it
	MaxTokens int            // largest number of ids in a sequence
	Encoder   *tasks.Encoder // if not nil, lines are texts; nil: lists of ids
}

// Read reads all lines, skipping blank ones.
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

func (s *Reader) line(line []byte) (ids []int32, err error) {
	if !jsontext.Value(line).IsValid() {
		return nil, errors.New("the line is not a JSON value")
	}
	if s.Encoder != nil {
		var text *string
		if json.Unmarshal(line, &text) != nil || text == nil {
			return nil, errors.New(`want a text as a JSON string, such as "Hello"`)
		}
		if ids, err = s.Encoder.Encode(*text); err != nil {
			return nil, err
		}
		if s.Encoder.BOS >= 0 {
			ids = append([]int32{s.Encoder.BOS}, ids...)
		}
	} else {
		want := fmt.Sprintf("want a list of token ids, from 0 to %d", s.Vocab-1)
		if json.Unmarshal(line, &ids) != nil || ids == nil {
			return nil, errors.New(want)
		}
		for i, id := range ids {
			if id < 0 || int(id) >= s.Vocab {
				return nil, fmt.Errorf("id %d is %d: %s", i, id, want)
			}
		}
	}
	if len(ids) < 2 || len(ids) > s.MaxTokens {
		return nil, fmt.Errorf("got a sequence of %d tokens, want 2 to %d: the first one is not "+
			"predicted, and the last one is only predicted", len(ids), s.MaxTokens)
	}
	return ids, nil
}

// MeanLogProb returns the mean of all log-probabilities, and their number.
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
	for i, sequence := range sequences {
		ids := lists.Map(sequence, func(id int32) string { return strconv.Itoa(int(id)) })
		numbers := lists.Map(logProbs[i], logProbText)
		_, err := fmt.Fprintf(w, "{\"ids\": [%s], \"log_probs\": [%s]}\n",
			strings.Join(ids, ", "), strings.Join(numbers, ", "))
		if err != nil {
			return err
		}
	}
	return w.Flush()
}

// logProbText returns the shortest text that parses to the same number or, if JSON cannot represent
// it, a string.
func logProbText(v float32) string {
	if v-v != 0 {
		text, _ := metrics.Number(v).MarshalJSON() // without an error
		return string(text)
	}
	return strconv.FormatFloat(float64(v), 'g', -1, 32)
}
