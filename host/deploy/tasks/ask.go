package tasks

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/model/score"
	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/jsonlines"
	"github.com/cage-qat/cage/internal/vfs"
)

// Model is a language model that answers questions.
type Model interface {
	// Score scores continuations in batches, which depend only on the requests, and calls each with
	// the indices and scores of a batch. It skips a batch if skip is true for all its requests.
	Score(ctx context.Context, requests []score.Request, skip func(request int) bool,
		each func(which []int, scores []score.Score) error) error
	// Generate continues prompts greedily, by at most the given number of tokens, until EOS or until a
	// text contains a string in until.
	Generate(ctx context.Context, prompts [][]int32, tokens int, until []string) ([]string, error)
}

// Questions describes questions to a model and the settings that affect its answers.
type Questions struct {
	Task  *Task
	Items []Item
	Until []string
	// Settings holds everything else that affects the answers, above all the model. Answers stored
	// with other settings are not used.
	Settings map[string]string
	Batch    int // number of prompts that are continued at once
	Progress func(done, of int)
}

type header struct {
	Format   int               `json:"format"`
	Task     string            `json:"task"`
	Items    string            `json:"items"` // hash of the questions
	Until    []string          `json:"until"`
	Tokens   int               `json:"tokens"`
	Settings map[string]string `json:"settings"`
}

// line is a stored answer: a score for one request of an item, or a generated text.
type line struct {
	Item    int      `json:"item"`
	Request int      `json:"request,omitempty"`
	LogProb *float64 `json:"logprob,omitempty"`
	Greedy  bool     `json:"greedy,omitempty"`
	Text    *string  `json:"text,omitempty"`
}

type collector struct {
	Questions
	requests []score.Request
	of       [][2]int             // for each request, the indices of its item and of the request in it
	first    []int                // index of each item's first request in requests
	answered map[int]line         // by index: of a request, or of an item if texts are generated
	log      *jsonlines.Log[line] // nil: answers are not saved
}

// Ask returns the answers to all items. Items that the file at path already answers are not asked
// again; path may be nil.
func Ask(ctx context.Context, path *vfs.Path, m Model, a Questions) (answers []Answer, err error) {
	s := &collector{Questions: a, answered: map[int]line{}}
	for i, it := range a.Items {
		s.first = append(s.first, len(s.requests))
		for j, r := range it.Scored {
			s.requests, s.of = append(s.requests, r), append(s.of, [2]int{i, j})
		}
	}
	if path != nil {
		if err := s.open(*path); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, s.log.Close()) }()
	}
	if a.Task.Kind == Generation {
		err = s.generate(ctx, m)
	} else {
		err = s.score(ctx, m)
	}
	if err != nil {
		return nil, err
	}
	answers = make([]Answer, len(s.Items))
	for i, it := range s.Items {
		if a.Task.Kind == Generation {
			answers[i].Text = s.answered[i].Text
			continue
		}
		for j := range it.Scored {
			l := s.answered[s.first[i]+j]
			answers[i].LogProbs = append(answers[i].LogProbs, *l.LogProb)
			answers[i].Greedy = append(answers[i].Greedy, l.Greedy)
		}
	}
	return answers, nil
}

func (s *collector) score(ctx context.Context, m Model) error {
	answered := func(i int) bool { _, ok := s.answered[i]; return ok }
	return m.Score(ctx, s.requests, answered, func(which []int, scores []score.Score) error {
		lines := make([]line, len(which))
		for k, i := range which {
			p, item := scores[k].LogProb, s.of[i][0]
			if math.IsNaN(p) || math.IsInf(p, 0) {
				return fmt.Errorf("item %d: the model's log-probability is %v", item, p)
			}
			lines[k] = line{Item: item, Request: s.of[i][1], LogProb: &p, Greedy: scores[k].Greedy}
		}
		return s.keep(lines, len(s.requests))
	})
}

// generate generates texts in batches. The batches are the same after an interruption, because a
// model's answers may depend slightly on the rest of the batch.
func (s *collector) generate(ctx context.Context, m Model) error {
	for from := 0; from < len(s.Items); from += s.Batch {
		to, missing := min(from+s.Batch, len(s.Items)), false
		var prompts [][]int32
		for i := from; i < to; i++ {
			_, answered := s.answered[i]
			missing = missing || !answered
			prompts = append(prompts, s.Items[i].Prompt)
		}
		if !missing {
			continue
		}
		texts, err := m.Generate(ctx, prompts, s.Task.Tokens(), s.Until)
		if err != nil {
			return err
		}
		lines := make([]line, len(texts))
		for k, text := range texts {
			text = Cut(text, s.Until)
			lines[k] = line{Item: from + k, Text: &text}
		}
		if err := s.keep(lines, len(s.Items)); err != nil {
			return err
		}
	}
	return nil
}

// index returns the index of an answer in answered; ok is false if these items do not include it.
func (s *collector) index(l line) (at int, ok bool) {
	if l.Item < 0 || l.Item >= len(s.Items) {
		return 0, false
	}
	if s.Task.Kind == Generation {
		return l.Item, l.Text != nil
	}
	known := l.Request >= 0 && l.Request < len(s.Items[l.Item].Scored)
	return s.first[l.Item] + l.Request, known && l.LogProb != nil
}

// keep stores the answers of a batch, and appends to the file those that it lacks: the file may
// have been cut off within the batch.
func (s *collector) keep(lines []line, of int) error {
	var more []line
	for _, l := range lines {
		at, _ := s.index(l)
		if _, answered := s.answered[at]; !answered {
			s.answered[at] = l
			more = append(more, l)
		}
	}
	if s.log != nil {
		if err := errors.Join(s.log.Append(more...), s.log.Sync()); err != nil {
			return err
		}
	}
	if s.Progress != nil {
		s.Progress(len(s.answered), of)
	}
	return nil
}

// open reads the answers in a file, or creates the file with a header line. If the first line of an
// existing file differs, that is an error, and the file is left unchanged. A line that is not an
// answer, as a power loss may leave, is cut off together with all lines after it.
func (s *collector) open(path vfs.Path) error {
	hash := sha256.New()
	for _, it := range s.Items {
		text, err := json.Marshal([]any{it, it.Scored, it.Prompt})
		if err != nil {
			return err
		}
		hash.Write(text)
	}
	items := fmt.Sprintf("%x", hash.Sum(nil))
	h := header{1, s.Task.Name, items, s.Until, s.Task.Tokens(), s.Settings}
	want, err := json.Marshal(h)
	if err != nil {
		return err
	}
	exists, err := path.Exists()
	if err == nil && !exists {
		ours := func(name string) bool { return name == path.Base() }
		if err = atomicfile.RemoveAbandoned(path.Dir(), ours); err == nil {
			err = atomicfile.WriteBytes(path, append(slices.Clone(want), '\n'))
		}
	}
	if err != nil {
		return err
	}
	size := int64(0)
	var first []byte
	for e, err := range jsonlines.Read[json.RawMessage](path) {
		if _, damaged := errors.AsType[*jsonlines.Error](err); err != nil && !damaged {
			return err
		}
		if e.Line == 1 {
			if first = e.Value; bytes.Equal(first, want) {
				size = e.End
				continue
			}
		}
		var l line
		if err != nil || size == 0 || json.Unmarshal(e.Value, &l) != nil {
			break
		}
		at, ok := s.index(l)
		if !ok {
			break
		}
		s.answered[at], size = l, e.End
	}
	if size == 0 {
		return fmt.Errorf("%s has answers %s: move it away, or give another --out", path,
			differing(first, h))
	}
	s.log, err = jsonlines.Continue[line](path, size)
	return err
}

// differing says in what the stored answers with the given first line differ from those of h.
func differing(first []byte, h header) string {
	var old header
	if json.Unmarshal(first, &old) != nil || old.Task == "" {
		return "without a readable first line"
	}
	var differences []string
	if model := old.Settings["model"]; model != h.Settings["model"] {
		differences = append(differences, "of another model ("+model+")")
	}
	if old.Items != h.Items {
		differences = append(differences, "to other questions")
	}
	for _, key := range slices.Sorted(maps.Keys(h.Settings)) {
		if was := old.Settings[key]; key != "model" && was != h.Settings[key] {
			differences = append(differences, fmt.Sprintf("with %s %s, not %s", key, was, h.Settings[key]))
		}
	}
	if len(differences) == 0 {
		return "made with other stop texts or token limits"
	}
	return strings.Join(differences, ", ")
}
